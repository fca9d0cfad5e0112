package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/parley-im/parley/client"
	"github.com/parley-im/parley/protocol"
)

// An app that prints what its user gets, and says hello. It needs no code for lost connections: they come back by themselves, and nothing
// is missed or shown twice.
func Example() {
	c, err := client.New(client.Options{
		Addr:     "chat.example.org:7000",
		DeviceID: "b7f0c2e4", // made once, when the app is installed
		Platform: protocol.PlatformLinux,
		Token: func(context.Context) (string, error) {
			return os.Getenv("PARLEY_TOKEN"), nil // an app asks its own backend
		},
		OnMessage: func(_ context.Context, m protocol.Message) error {
			fmt.Printf("%s #%d %s: %s\n", m.ConversationID, m.Seq, m.Sender, m.Content)
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	c.Start()

	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	ack, err := c.Send(ctx, client.Text(client.User("bob"), "hello"))
	if err == nil {
		fmt.Println("stored as", ack.ServerMsgID)
	}
	<-ctx.Done()
	if err := c.Close(); err != nil {
		log.Fatal(err)
	}
}

// An app that shows at once what its user typed, and says later what became of it.
func ExampleClient_Queue() {
	ctx := context.Background()
	var c *client.Client // see the package's example

	p, err := c.Queue(ctx, client.Text(client.Group("team"), "on my way"))
	if errors.Is(err, client.ErrOutboxFull) {
		fmt.Println("too much waits already")
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("on its way:", p.ClientMsgID())

	_, err = p.Wait(ctx)
	var refused *protocol.Error
	switch {
	case err == nil:
		fmt.Println("stored")
	case errors.As(err, &refused):
		fmt.Println("refused for good:", refused.Code)
	default:
		fmt.Println("not known yet; it stays in the outbox:", err)
	}
}

// The ten newest conversations, with what is unread in each.
func ExampleClient_AllConversations() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var c *client.Client // see the package's example

	n := 0
	for cv, err := range c.AllConversations(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(cv.ConversationID, cv.Unread)
		if n++; n == 10 {
			break
		}
	}
}

// A page of older messages, as an app fetches it when its user scrolls up.
func ExampleClient_Pull() {
	var c *client.Client // see the package's example
	oldestShown := uint64(171)

	page, err := c.Pull(context.Background(), protocol.Pull{
		ConversationID: protocol.DirectConversation("alice", "bob"), ToSeq: oldestShown - 1, NewestFirst: true, Limit: 50,
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range page.Messages {
		fmt.Println(m.Seq, m.Sender, m.Status)
	}
	if !page.More {
		fmt.Println("that was the first")
	}
}

// An app that stores messages, and keeps what it stored as it should be: whoever changes or deletes something, on whatever device, it ends up
// in these handlers.
func ExampleOptions_handlers() {
	type place struct {
		conversation string
		seq          uint64
	}
	stored := map[place]protocol.Message{} // an app's database
	keep := func(_ context.Context, m protocol.Message) error {
		at := place{m.ConversationID, m.Seq}
		if old, ok := stored[at]; !ok || m.ChangeSeq > old.ChangeSeq || m.Status == protocol.StatusGone {
			stored[at] = m
		}
		return nil
	}
	o := client.Options{
		OnMessage: keep,
		OnChange:  keep, // revoked, edited or reacted to
		OnDeleted: func(_ context.Context, conversation string, seqs []uint64) error {
			for _, seq := range seqs {
				delete(stored, place{conversation, seq})
			}
			return nil
		},
		OnCleared: func(_ context.Context, conversation string, upTo uint64) error {
			for at := range stored {
				if at.conversation == conversation && at.seq <= upTo {
					delete(stored, at)
				}
			}
			return nil
		},
	}
	_ = o // with Addr, Token and DeviceID it is what New takes; see the package's example
}

// A message is edited, and if that is too late, taken back.
func ExampleClient_Edit() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var c *client.Client // see the package's example
	conversation, seq := protocol.DirectConversation("alice", "bob"), uint64(171)

	_, err := c.Edit(ctx, conversation, seq, protocol.ContentText, []byte("see you at eight"))
	switch {
	case err == nil:
		return // OnChange shows it
	case errors.Is(err, &protocol.Error{Code: protocol.CodeForbidden}):
		fmt.Println("not one's own, or too old")
	case errors.Is(err, &protocol.Error{Code: protocol.CodeNotFound}):
		fmt.Println("revoked, deleted or removed meanwhile")
	default:
		fmt.Println("not known; an edit may be repeated:", err)
	}
}

func ExampleClient_React() {
	ctx := context.Background()
	var c *client.Client // see the package's example

	if _, err := c.React(ctx, protocol.DirectConversation("alice", "bob"), 171, "👍", true); err != nil {
		log.Fatal(err)
	}
}

// Two messages are hidden from the user, and then the whole history; others keep theirs.
func ExampleClient_Delete() {
	ctx := context.Background()
	var c *client.Client // see the package's example
	conversation := protocol.DirectConversation("alice", "bob")

	if err := c.Delete(ctx, conversation, 170, 171); err != nil {
		log.Fatal(err)
	}
	if _, err := c.Clear(ctx, conversation, 0); err != nil {
		log.Fatal(err)
	}
}
