package client

import (
	"encoding/binary"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-im/parley/protocol"
)

// What a server sends that is not of the protocol, or too much, ends the connection, not the client; memory is not taken on a
// length's word.
func TestHostileFrames(t *testing.T) {
	frame := func(length uint32, rest ...byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, length), rest...)
	}
	raw := func(cmd protocol.Command, body ...byte) []byte { return protocol.AppendRawFrame(nil, cmd, 7, body) }
	for name, b := range map[string][]byte{
		"length 0":           frame(0),
		"length 4 GiB":       frame(1<<32-1, 1, 0, 0, 12, 0, 0, 0, 1),
		"over max_down":      frame(512<<10+9, 1, 0, 0, 12, 0, 0, 0, 1),
		"version 2":          frame(8, 2, 0, 0, 12, 0, 0, 0, 1),
		"flags":              frame(8, 1, 1, 0, 12, 0, 0, 0, 1),
		"no array":           raw(protocol.CmdPush, 0xc3),
		"array of 4 billion": raw(protocol.CmdPush, 0x91, 0xdd, 0xff, 0xff, 0xff, 0xff),
		"bytes after":        raw(protocol.CmdEvent, 0x90, 0x90),
		"bad ERROR":          raw(protocol.CmdError, 0x01),
		"bad KICK":           raw(protocol.CmdKick, 0x91, 0xa1, 'x'),
		"bad GOAWAY":         raw(protocol.CmdGoAway, 0x91, 0xa1, 'x'),
		"bad SIGNAL":         raw(protocol.CmdSignal, 0x91, 0xa1, 'x'),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				c, r := connect(t, f)
				defer stop(t, f, c)
				ready(t, c)
				f.locked(func() { f.peers[0].nc.Write(b) })
				rest(time.Minute)
				ready(t, c)
				if f.connections() != 2 {
					t.Errorf("%d connections, want 2", f.connections())
				}
				f.post(bob, 1)
				synctest.Wait()
				r.wantSeqs(t, bob, 1, 1)
			})
		})
	}
}

// A frame of a byte at a time, and many in one write.
func TestFramesSplitAnywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c, r := connect(t, f)
		defer stop(t, f, c)
		ready(t, c)
		var all []byte
		f.locked(func() {
			for range 50 {
				m := f.write(bob)
				m.Content = make([]byte, 10_000)
				all = protocol.AppendFrame(all, protocol.CmdPush, 1, &protocol.Push{Messages: []protocol.Message{m}})
			}
			for len(all) > 0 {
				n := min(len(all), 1+len(all)%97*len(all)%4099)
				f.peers[0].nc.Write(all[:n])
				all = all[n:]
			}
		})
		synctest.Wait()
		r.wantSeqs(t, bob, 1, 50)
	})
}

func TestUnknownThings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c, r := connect(t, f)
		defer stop(t, f, c)
		ready(t, c)
		f.locked(func() {
			p := f.peers[0]
			p.write(999, 0, &protocol.Pong{})                                                                           // a command
			p.write(protocol.CmdSendAck, 12345, &protocol.SendAck{Seq: 9})                                              // a reply to nothing
			p.write(protocol.CmdError, 54321, &protocol.Error{Code: 4})                                                 // an error for nothing
			p.write(protocol.CmdError, 0, &protocol.Error{Code: 777})                                                   // a code
			p.write(protocol.CmdEvent, 0, &protocol.Events{Events: []protocol.Event{{Type: 200, ConversationID: bob}}}) // an event
			cv := f.conversation(bob)
			f.push(p, f.append(cv, protocol.Message{Sender: "bob", ContentType: 1777, Content: []byte("?")})) // a content type
			f.push(p, f.append(cv, protocol.Message{Sender: "bob", ContentType: protocol.ContentGroupChange}))
			f.push(p, f.append(cv, protocol.Message{Sender: "bob", ContentType: 555}))
		})
		synctest.Wait()
		if got := r.seqs(bob); !slices.Equal(got, []uint64{2, 3}) {
			t.Errorf("the app was shown %v, want 2 and 3", got)
		}
		if f.connections() != 1 || len(r.events) != 0 {
			t.Errorf("%d connections, events %v", f.connections(), r.events)
		}
	})
}
