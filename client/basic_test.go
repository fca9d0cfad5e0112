package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-im/parley/protocol"
)

var bob = protocol.DirectConversation(me, "bob")

func TestChat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c, r := connect(t, f)
		defer stop(t, f, c)
		if err := c.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		ack, err := c.Send(t.Context(), Text(User("bob"), "hello"))
		if err != nil || ack.Seq != 1 || ack.ConversationID != bob {
			t.Fatalf("ack %+v, %v", ack, err)
		}
		f.post(bob, 3)
		if _, err := c.Send(t.Context(), Text(User("bob"), "bye")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		r.wantSeqs(t, bob, 1, 5)
		if m := r.messages[0]; m.Sender != me || string(m.Content) != "hello" || m.ServerMsgID != ack.ServerMsgID || m.ClientMsgID != ack.ClientMsgID {
			t.Errorf("the own message came as %+v", m)
		}
		if n := len(f.pulls()); n != 0 {
			t.Errorf("%d PULLs, want none: everything was pushed or acked", n)
		}
		if c.UserID() != me {
			t.Errorf("UserID is %q", c.UserID())
		}
	})
}

func TestCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.fill(bob, 30)
		f.fill("g:team", 2)
		c, r := connect(t, f)
		defer stop(t, f, c)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if p, err := c.Pull(ctx, protocol.Pull{ConversationID: bob, Limit: 10, NewestFirst: true}); err != nil || len(p.Messages) != 10 || p.Messages[0].Seq != 30 || !p.More {
			t.Errorf("Pull: %+v, %v", p, err)
		}
		if p, err := c.Read(ctx, bob, 30); err != nil || p.Seq != 30 {
			t.Errorf("Read: %+v, %v", p, err)
		}
		if p, err := c.Unread(ctx); err != nil || p.Total != 7 || p.Conversations != 2 {
			t.Errorf("Unread: %+v, %v", p, err)
		}
		if p, err := c.Conversations(ctx, bob, "g:none"); err != nil || len(p) != 1 || p[0].MaxSeq != 30 {
			t.Errorf("Conversations: %+v, %v", p, err)
		}
		var all []string
		for cv, err := range c.AllConversations(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, cv.ConversationID)
		}
		if len(all) != 2 {
			t.Errorf("AllConversations: %v", all)
		}
		if err := c.SignOut(ctx, ""); err != nil {
			t.Errorf("SignOut: %v", err)
		}
		if err := c.Call(ctx, protocol.CmdReaders, &protocol.Readers{}, nil); err == nil {
			t.Error("READERS: no error from a server that does not know it")
		}
		if err := c.Signal(ctx, User("bob"), 5, []byte("typing")); err != nil {
			t.Errorf("Signal: %v", err)
		}
		f.locked(func() {
			f.peers[0].write(protocol.CmdSignal, 0, &protocol.Signal{Kind: protocol.KindDirect, Target: me, Type: 6, Data: []byte("x"), Sender: "bob"})
			f.peers[0].write(protocol.CmdEvent, 0, &protocol.Events{Events: []protocol.Event{{Type: protocol.EventRead, ConversationID: bob, Seq: 9, User: "bob"}}})
		})
		synctest.Wait()
		if s := f.sent(protocol.CmdSignal); len(s) != 1 || s[0].RequestID != 0 {
			t.Errorf("the server got the signals %+v", s)
		}
		if len(r.signals) != 1 || r.signals[0].Sender != "bob" || string(r.signals[0].Data) != "x" {
			t.Errorf("the app got the signals %+v", r.signals)
		}
		if len(r.events) != 1 || r.events[0].Seq != 9 {
			t.Errorf("the app got the events %+v", r.events)
		}
	})
}
