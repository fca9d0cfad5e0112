package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

func newAdmin() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "admin",
		Short: "Look into a store, check it, and remove what must go",
		Long: `admin works on what a server has stored: on a data folder while its server is stopped, or on a MongoDB database, whose server may run.

The database's URI comes from --mongo, else from PARLEY_MONGO or the config file of the server, so that its password need not be on a command
line, where other users can see it. It is never printed.`,
		Example: `  parley admin inspect p:alice:bob 17 --data /var/lib/parley
  parley admin verify --config /etc/parley.yaml
  parley admin purge --older-than 365d --mongo mongodb://db.example.org/parley`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newInspect(), newVerify(), newPurge(), newRevoke(), newRebucket())
	return cmd
}

// interruptible is the command's context, which Ctrl-C and SIGTERM end: the work stops at the next step, and what was done stays.
func interruptible(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	return signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
}

// onStore runs f on the store, and closes it.
func onStore(cmd *cobra.Command, flags *storeFlags, f func(context.Context, store) error) (err error) {
	ctx, stop := interruptible(cmd)
	defer stop()
	s, err := flags.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	err = f(ctx, s)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return errors.New("interrupted; what was done stays, and the same command goes on from there")
	}
	return err
}

// parseConversation checks a conversation's id.
func parseConversation(id string) error {
	if kind, _, _ := protocol.ParseConversation(id); kind == protocol.KindInvalid {
		return fmt.Errorf("%q is no conversation; p:alice:bob is one, with the users in byte order", id)
	}
	return nil
}

// parseSeq reads the number of a message.
func parseSeq(text string) (uint64, error) {
	seq, err := strconv.ParseUint(text, 10, 64)
	if err != nil || seq == 0 {
		return 0, fmt.Errorf("%q is no number of a message; they begin at 1", text)
	}
	return seq, nil
}

// existing is where a conversation stands, or an error when there is none of that id.
func existing(ctx context.Context, s store, conversation string) (storage.State, error) {
	state, err := s.State(ctx, conversation)
	if err == nil && state.Tail == 0 {
		err = fmt.Errorf("there is no conversation %s in this store", conversation)
	}
	return state, err
}

// countConversations is for progress bars.
func countConversations(ctx context.Context, s store) (n uint64, err error) {
	err = s.Conversations(ctx, "", func(string) bool {
		n++
		return true
	})
	return n, err
}

// eachConversation calls f for all of them, a page at a time, so that no listing stays open while f works.
func eachConversation(ctx context.Context, s storage.Operator, f func(conversation string) error) error {
	const together = 1000
	for after := ""; ; {
		var page []string
		err := s.Conversations(ctx, after, func(c string) bool {
			page = append(page, c)
			return len(page) < together
		})
		if err != nil || len(page) == 0 {
			return err
		}
		for _, c := range page {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := f(c); err != nil {
				return err
			}
		}
		after = page[len(page)-1]
	}
}
