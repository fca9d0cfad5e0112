package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// rebucketer moves a conversation's messages into buckets of another size.
type rebucketer interface {
	Rebucket(ctx context.Context, conversation string, size int, progress func(done, total uint64)) error
}

func newRebucket() *cobra.Command {
	var flags storeFlags
	var size int
	cmd := &cobra.Command{
		Use:   "rebucket --size N [CONVERSATION...]",
		Short: "Move conversations into buckets of another size (MongoDB)",
		Long: `rebucket moves the messages of conversations, or of all of them, into buckets of N messages, while they are in use: messages and changes go on arriving. A
conversation whose buckets have that size already is left alone, and what was interrupted goes on when the same command is given again.

A folder needs none of it: its store writes messages in runs that have no fixed size.`,
		Example: `  parley admin rebucket --size 50 p:alice:bob --mongo mongodb://db.example.org/parley
  parley admin rebucket --size 100 --config /etc/parley.yaml`,
		RunE: func(cmd *cobra.Command, conversations []string) error {
			for _, c := range conversations {
				if err := parseConversation(c); err != nil {
					return err
				}
			}
			if size < 1 || size > maxBucket {
				return fmt.Errorf("--size is %d; give 1 to %d messages", size, maxBucket)
			}
			if flags.mongo == "" {
				return errors.New("a folder has no buckets to move: its store writes messages in runs of no fixed size. Name a database with --mongo")
			}
			return onStore(cmd, &flags, func(ctx context.Context, s store) error {
				return rebucket(ctx, s, conversations, size, cmd.OutOrStdout(), cmd.ErrOrStderr())
			})
		},
	}
	flags.register(cmd)
	cmd.Flags().IntVar(&size, "size", 0, "messages in a bucket (required)")
	annotate(cmd, onlyNow, nil, "size")
	_ = cmd.MarkFlagRequired("size") // fails only for a flag that is not there
	return cmd
}

// maxBucket keeps a bucket's document far from MongoDB's limit; the store checks the exact bound.
const maxBucket = 1000

func rebucket(ctx context.Context, s store, conversations []string, size int, out, progress io.Writer) error {
	r, ok := s.(rebucketer)
	if !ok {
		return errors.New("this store has no buckets to move")
	}
	if len(conversations) == 0 {
		err := eachConversation(ctx, s, func(c string) error {
			conversations = append(conversations, c)
			return nil
		})
		if err != nil {
			return err
		}
	}
	b := newBar(progress, "conversations", uint64(len(conversations)))
	for i, c := range conversations {
		if _, err := existing(ctx, s, c); err != nil {
			return err
		}
		shown := func(done, total uint64) {
			if len(conversations) == 1 {
				b.resize("messages", total)
				b.set(done)
			}
		}
		if err := r.Rebucket(ctx, c, size, shown); err != nil {
			b.clear()
			return fmt.Errorf("%s: %w", c, err)
		}
		if len(conversations) > 1 {
			b.set(uint64(i + 1))
		}
	}
	b.clear()
	fmt.Fprintf(out, "%d conversations have buckets of %d\n", len(conversations), size)
	return nil
}
