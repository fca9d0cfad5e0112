package client

import (
	"context"
	"errors"
	"iter"

	"github.com/parley-im/parley/protocol"
)

// Pull reads messages of a conversation, as an app does that scrolls up; see PULL in the protocol. It does not move the cursor of
// OnMessage, and what it returns does not count as told: OnChange tells of those changes as well. Like Call it waits for a
// connection and repeats, until ctx ends.
func (c *Client) Pull(ctx context.Context, p protocol.Pull) (protocol.PullReply, error) {
	var reply protocol.PullReply
	err := c.Call(ctx, protocol.CmdPull, &p, &reply)
	if changed := latestChange(reply.Messages); changed > 0 {
		c.inbox.changeKnown(p.ConversationID, changed)
	}
	return reply, err
}

// latestChange is the highest change_seq among messages.
func latestChange(list []protocol.Message) (seq uint64) {
	for i := range list {
		seq = max(seq, list[i].ChangeSeq)
	}
	return seq
}

// Read moves the user's read mark of a conversation to seq, never backwards. The reply has the mark now.
func (c *Client) Read(ctx context.Context, conversationID string, seq uint64) (protocol.ReadReply, error) {
	var reply protocol.ReadReply
	err := c.Call(ctx, protocol.CmdRead, &protocol.Position{ConversationID: conversationID, Seq: seq}, &reply)
	return reply, err
}

// Unread returns how many messages are unread, and in how many conversations.
func (c *Client) Unread(ctx context.Context) (protocol.UnreadReply, error) {
	var reply protocol.UnreadReply
	err := c.Call(ctx, protocol.CmdUnread, nil, &reply)
	return reply, err
}

// Conversations returns the conversations with these ids, of those that the user may see. One call takes at most 100 ids.
func (c *Client) Conversations(ctx context.Context, ids ...string) ([]protocol.Conversation, error) {
	var reply protocol.GetConversationsReply
	err := c.Call(ctx, protocol.CmdGetConversation, &protocol.GetConversations{ConversationIDs: ids}, &reply)
	return reply.Conversations, err
}

// AllConversations goes over the whole list, pinned ones first, then the newest first. An error ends it. It has nothing to do
// with OnList, which an app with a store of its own prefers. A conversation that moves meanwhile may come twice.
func (c *Client) AllConversations(ctx context.Context) iter.Seq2[protocol.Conversation, error] {
	return func(yield func(protocol.Conversation, error) bool) {
		ask := protocol.Sync{}
		for {
			ask.Limit = min(c.pages.get(), protocol.MaxArray)
			var reply protocol.SyncReply
			if err := c.Call(ctx, protocol.CmdSync, &ask, &reply); err != nil {
				yield(protocol.Conversation{}, err)
				return
			}
			for _, cv := range shown(reply.Conversations) {
				if !yield(cv, nil) {
					return
				}
			}
			if reply.NextCursor == "" || reply.NextCursor == ask.Cursor {
				return
			}
			ask.Cursor = reply.NextCursor
		}
	}
}

// Signal tells the target's devices that are online now something that is not worth storing: typing and the like. kind of signal
// and data are the app's own. It returns once the signal is on its way; signals may be lost.
func (c *Client) Signal(ctx context.Context, to Target, kind uint16, data []byte) error {
	s := protocol.Signal{Kind: to.Kind, Target: to.ID, Type: kind, Data: data}
	k, err := c.online(ctx)
	if err != nil {
		return err
	}
	if err := k.fits(protocol.AppendBody(nil, &s)); err != nil {
		return err
	}
	if !k.post(protocol.CmdSignal, 0, &s) {
		c.count.signalsDropped.Add(1)
		return errSignalLost
	}
	return nil
}

var errSignalLost = errors.New("client: no room for a signal")

// SignOut ends a device's right to offline pushes: "" is this device, and then the app calls Close; another device of the user is kicked.
func (c *Client) SignOut(ctx context.Context, deviceID string) error {
	return c.Call(ctx, protocol.CmdSignOut, &protocol.SignOut{DeviceID: deviceID}, nil)
}
