package client

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-im/parley/protocol"
)

// Only tokens that were fetched for the attempt count as fresh: the one that the client kept may be refused besides.
func TestKeptTokenIsNotFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.onHello = func(p *peer, _ protocol.Hello) bool {
			refused := p.n == 1 || p.n == 2 // the kept one, and a fresh one
			if refused {
				p.fail(helloID, protocol.CodeUnauthenticated, 0)
			}
			return refused
		}
		tokens := 0
		c, _ := connect(t, f, func(o *Options) {
			o.Token = func(context.Context) (string, error) { tokens++; return fmt.Sprint("token ", tokens), nil }
		})
		defer stop(t, f, c)
		ready(t, c)
		f.cut()
		rest(10 * time.Minute)
		ready(t, c)
		if f.connections() != 4 || tokens != 3 {
			t.Errorf("%d connections, %d tokens; want 4 and 3", f.connections(), tokens)
		}
	})
}

// The delay grows while connections end as soon as they are made, and is short again after one that lasted.
func TestBackoffAfterConnections(t *testing.T) {
	for _, life := range []time.Duration{time.Millisecond, longLived} {
		t.Run(life.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				c, _ := connect(t, f, func(o *Options) { o.MaxBackoff = time.Hour })
				defer stop(t, f, c)
				var waited time.Duration
				for range 20 {
					ready(t, c)
					rest(life)
					f.cut()
					synctest.Wait()
					start := time.Now()
					ready(t, c)
					waited += time.Since(start)
				}
				if grows := waited > 5*time.Minute; grows != (life < longLived) {
					t.Errorf("waited %v in all", waited)
				}
			})
		})
	}
}

// A Wake while there is a connection does not shorten the delay after that one.
func TestWakeOnline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c, _ := connect(t, f, func(o *Options) { o.MinBackoff = 1000 * time.Hour })
		defer stop(t, f, c)
		ready(t, c)
		c.Wake()
		f.cut()
		rest(time.Millisecond)
		if f.connections() != 1 {
			t.Error("it connected again at once")
		}
		c.Wake()
		synctest.Wait()
		if f.connections() != 2 {
			t.Error("Wake did not connect")
		}
	})
}

// Close does not wait for a peer that does not read, over TLS either.
func TestCloseOverTLS(t *testing.T) {
	cert, pool := selfSigned(t)
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		done := make(chan struct{})
		go func() { // a server that reads HELLO and nothing more
			defer close(done)
			nc := tls.Server(ours, &tls.Config{Certificates: []tls.Certificate{cert}})
			if _, err := nc.Read(make([]byte, 1000)); err != nil {
				t.Error(err)
			}
			nc.Write(protocol.AppendFrame(nil, protocol.CmdWelcome, helloID, &protocol.Welcome{UserID: me}))
		}()
		c, err := New(Options{
			Addr: "127.0.0.1:1", DeviceID: device, TLS: &tls.Config{RootCAs: pool},
			Token:       func(context.Context) (string, error) { return "token", nil },
			DialContext: func(context.Context, string, string) (net.Conn, error) { return theirs, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		c.Start()
		if err := c.Online(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-done
		start := time.Now()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d > time.Second {
			t.Errorf("Close took %v", d)
		}
		ours.Close()
	})
}

// A conversation that moved between the pages of the first list, so that none has it: a push tells of it, and it starts with the newest
// messages like the others.
func TestFirstListMisses(t *testing.T) {
	for _, history := range []int{-1, 10} {
		t.Run(fmt.Sprint(history), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				f.fill("g:000", 500)
				f.fill("g:001", 1)
				f.onFrame = func(p *peer, fr protocol.Frame) bool {
					if fr.Command != protocol.CmdSync {
						return false
					}
					f.onFrame = nil
					p.write(fr.Command.Reply(), fr.RequestID, &protocol.SyncReply{
						Conversations: []protocol.Conversation{f.convs["g:001"].view()}, NextCursor: "0/2",
					})
					f.push(p, f.write("g:000"), f.write("g:000"))
					return true
				}
				c, r := connect(t, f, func(o *Options) { o.History = history })
				defer stop(t, f, c)
				ready(t, c)
				synctest.Wait()
				r.wantSeqs(t, "g:000", 501-uint64(max(history, 0)), 502)
			})
		})
	}
}

// However many conversations are behind, what was fetched and waits for a slow app is bounded.
func TestSlowHandlerManyConversations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const convs, each, size, hold = 50, 60, 10 << 10, 1 << 20 // 30 MB
		f := newFake(t)
		content := []byte(strings.Repeat("x", size))
		f.locked(func() {
			for i := range convs {
				for range each {
					f.append(f.conversation(fmt.Sprint("g:", i)), protocol.Message{Sender: "bob", ContentType: 1, Content: content})
				}
			}
		})
		gate := make(chan struct{})
		r := &recorder{gate: gate}
		c, _ := connect(t, f, r.options, everything, func(o *Options) { o.HoldBytes = hold })
		defer stop(t, f, c)
		ready(t, c)
		rest(time.Hour)
		c.inbox.mu.Lock()
		held := c.inbox.fetchedBytes
		c.inbox.mu.Unlock()
		if limit := hold/2 + fetchers*512<<10; held > limit || held < hold/2 {
			t.Errorf("%d bytes are held, want %d to %d", held, hold/2, limit)
		}
		close(gate)
		synctest.Wait()
		for i := range convs {
			r.wantSeqs(t, fmt.Sprint("g:", i), 1, each)
		}
	})
}

// What a connection of the old epoch still brings after the reset is not taken for the new one's.
func TestInboxGeneration(t *testing.T) {
	o := Options{}
	o.fill()
	b := newInbox(&o, &counters{})
	old := b.welcome(me)
	b.reset()
	list := []protocol.Message{{ConversationID: bob, Seq: 1}}
	b.push(list, nil, old)
	b.own(&list[0], old)
	b.exists(bob, 1, old)
	_, listed := b.list([]protocol.Conversation{{ConversationID: bob, MaxSeq: 1}}, old)
	if len(b.convs) != 0 || listed || b.complete(old) {
		t.Error("taken")
	}
	b.push(list, nil, b.welcome(me))
	if len(b.convs) != 1 {
		t.Error("what the new connection brings is not taken")
	}
}
