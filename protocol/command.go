package protocol

import "strconv"

// Command says what a frame is. A reply's command is its request's + 1, or CmdError.
type Command uint16

// The commands of version 1.
const (
	CmdHello           Command = 1
	CmdWelcome         Command = 2
	CmdPing            Command = 3
	CmdPong            Command = 4
	CmdError           Command = 5
	CmdKick            Command = 6
	CmdGoAway          Command = 7
	CmdSignOut         Command = 8
	CmdSignedOut       Command = 9
	CmdSend            Command = 10
	CmdSendAck         Command = 11
	CmdPush            Command = 12
	CmdPushAck         Command = 13
	CmdEvent           Command = 14
	CmdSignal          Command = 16
	CmdSync            Command = 20
	CmdPull            Command = 22
	CmdChanges         Command = 24
	CmdRead            Command = 30
	CmdRevoke          Command = 32
	CmdDelete          Command = 34
	CmdClear           Command = 36
	CmdEdit            Command = 38
	CmdSetConversation Command = 40
	CmdGetConversation Command = 42
	CmdUnread          Command = 44
	CmdReact           Command = 46
	CmdRemove          Command = 48
	CmdWatchPresence   Command = 50
	CmdGetProfiles     Command = 60
	CmdSetProfile      Command = 62
	CmdReaders         Command = 70
)

// Reply is the command of the reply to c.
func (c Command) Reply() Command { return c + 1 }

// CountsInFlight tells whether a request of this command counts against max_inflight, and so has exactly one reply.
func (c Command) CountsInFlight() bool {
	return c != CmdPing && c != CmdPushAck && c != CmdSignal
}

var commandNames = map[Command]string{
	CmdHello: "HELLO", CmdWelcome: "WELCOME", CmdPing: "PING", CmdPong: "PONG", CmdError: "ERROR", CmdKick: "KICK",
	CmdGoAway: "GOAWAY", CmdSignOut: "SIGN_OUT", CmdSend: "SEND", CmdSendAck: "SEND_ACK", CmdPush: "PUSH",
	CmdPushAck: "PUSH_ACK", CmdEvent: "EVENT", CmdSignal: "SIGNAL", CmdSync: "SYNC", CmdPull: "PULL",
	CmdChanges: "CHANGES", CmdRead: "READ", CmdRevoke: "REVOKE", CmdDelete: "DELETE", CmdClear: "CLEAR",
	CmdEdit: "EDIT", CmdSetConversation: "SET_CONVERSATION", CmdGetConversation: "GET_CONVERSATIONS",
	CmdUnread: "UNREAD", CmdReact: "REACT", CmdRemove: "REMOVE_CONVERSATION", CmdWatchPresence: "WATCH_PRESENCE",
	CmdGetProfiles: "GET_PROFILES", CmdSetProfile: "SET_PROFILE", CmdReaders: "READERS",
}

// String is the command's name in the spec, NAME_REPLY for a reply without a name, or its number.
func (c Command) String() string {
	if s, ok := commandNames[c]; ok {
		return s
	}
	if s, ok := commandNames[c-1]; ok && c-1 >= CmdSignOut && c-1 != CmdEvent && c-1 != CmdSignal { // which have no reply
		return s + "_REPLY"
	}
	return strconv.Itoa(int(c))
}
