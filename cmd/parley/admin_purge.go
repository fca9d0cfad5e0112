package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/parley-im/parley/storage"
)

// purgeStep is how many messages are purged at a time: each step is durable, and short enough not to be in the way of a server that runs.
const purgeStep = 1000

type purgeSettings struct {
	storeFlags
	olderThan limit
	yes       bool
	compact   bool
}

func newPurge() *cobra.Command {
	var s purgeSettings
	cmd := &cobra.Command{
		Use:   "purge {CONVERSATION FROM TO | --older-than AGE}",
		Short: "Remove messages for everyone and for ever",
		Long: `purge removes the messages FROM to TO of a conversation, or those of all conversations that are older than an age or from before a date: their content
and everything that was done to them, for everyone and for ever. Their numbers stay and are answered as gone, and nothing brings them back but a
backup that was made before.

On a terminal it asks first; without one it wants --yes. It works in small steps: one that is interrupted can be made again. "serve --retention"
does the same all the time.`,
		Example: `  parley admin purge p:alice:bob 1 100 --data /var/lib/parley
  parley admin purge --older-than 365d --yes
  parley admin purge --older-than 2025-01-01 --config /etc/parley.yaml`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 0 && len(args) != 3 {
				return errors.New("give a conversation and the first and last number, as in: parley admin purge p:alice:bob 1 100, or --older-than")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return s.run(cmd, args) },
	}
	s.register(cmd)
	cmd.Flags().Var(&s.olderThan, "older-than", "purge what is older, in all conversations: an age as in 365d or 36h, or a date as in 2025-12-31 (UTC)")
	cmd.Flags().BoolVar(&s.yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&s.compact, "compact", false, "rewrite the folder's files after that, so that nothing of what was purged is left in them; takes as long as copying them")
	annotate(cmd, onlyNow, nil, "older-than", "yes", "compact")
	return cmd
}

func (s *purgeSettings) run(cmd *cobra.Command, args []string) error {
	byAge := s.olderThan.set()
	switch {
	case s.compact && s.mongo != "":
		return errors.New("--compact is for folders; MongoDB frees and uses again the space of its documents by itself")
	case byAge && len(args) > 0:
		return errors.New("--older-than is for all conversations; give it alone, or a conversation and numbers")
	case !byAge && len(args) == 0:
		return errors.New("purge what? Give a conversation and the first and last number, or --older-than")
	case byAge:
		before := s.olderThan.before(time.Now())
		return s.confirmed(cmd, fmt.Sprintf("everything from before %s in all conversations", before.UTC().Format(time.DateTime+" UTC")),
			func(ctx context.Context, st store) error {
				return purgeBefore(ctx, st, before, cmd.OutOrStdout(), cmd.ErrOrStderr())
			})
	}
	from, to, err := parsePurge(args)
	if err != nil {
		return err
	}
	return s.confirmed(cmd, fmt.Sprintf("messages %d to %d of %s", from, to, args[0]), func(ctx context.Context, st store) error {
		state, err := existing(ctx, st, args[0])
		if err != nil {
			return err
		}
		if from > state.Tail {
			return fmt.Errorf("%s has no message %d; its newest is %d", args[0], from, state.Tail)
		}
		to = min(to, state.Tail)
		b := newBar(cmd.ErrOrStderr(), "messages", to-from+1)
		n, err := purge(ctx, st, args[0], from, to, func(seq uint64) error {
			b.set(seq - from + 1)
			return nil
		})
		b.clear()
		fmt.Fprintf(cmd.OutOrStdout(), "%d messages purged\n", n)
		return err
	})
}

func parsePurge(args []string) (from, to uint64, err error) {
	if err := parseConversation(args[0]); err != nil {
		return 0, 0, err
	}
	if from, err = parseSeq(args[1]); err != nil {
		return 0, 0, err
	}
	if to, err = parseSeq(args[2]); err != nil {
		return 0, 0, err
	}
	if from > to {
		return 0, 0, fmt.Errorf("the first number, %d, is above the last, %d", from, to)
	}
	return from, to, nil
}

// confirmed opens the store and asks; what follows f's error is up to onStore.
func (s *purgeSettings) confirmed(cmd *cobra.Command, what string, f func(context.Context, store) error) error {
	if !s.yes {
		if err := confirm(cmd.InOrStdin(), cmd.ErrOrStderr(), "This removes "+what+", for everyone and for ever."); err != nil {
			return err
		}
	}
	return onStore(cmd, &s.storeFlags, func(ctx context.Context, st store) error {
		if err := f(ctx, st); err != nil || !s.compact {
			return err
		}
		return st.(compacter).Compact(ctx)
	})
}

// compacter is a store that can be told to take purged bytes off the disk now.
type compacter interface {
	Compact(ctx context.Context) error
}

// confirm asks a person at a terminal.
func confirm(in io.Reader, out io.Writer, what string) error {
	if f, ok := in.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		return errors.New("there is no terminal to ask on; give --yes if this is meant")
	}
	fmt.Fprintf(out, "%s\nType yes to go on: ", what)
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if strings.TrimSpace(answer) != "yes" {
		return errors.New("not confirmed; nothing was removed")
	}
	return nil
}

// purge purges a range in steps. stepped, called after each with the last seq so far, may end it by an error.
func purge(ctx context.Context, s storage.Operator, conversation string, from, to uint64, stepped func(seq uint64) error) (purged uint64, err error) {
	for first := from; first <= to; {
		if err := ctx.Err(); err != nil {
			return purged, err
		}
		last := min(to, first+purgeStep-1)
		n, err := s.Purge(ctx, conversation, first, last)
		purged += n
		if err != nil {
			return purged, err
		}
		if err := stepped(last); err != nil {
			return purged, err
		}
		first = last + 1
	}
	return purged, nil
}

// purgeBefore purges what is older than a moment in all conversations.
func purgeBefore(ctx context.Context, s store, before time.Time, out, progress io.Writer) error {
	total, err := countConversations(ctx, s)
	if err != nil {
		return err
	}
	b := newBar(progress, "conversations", total)
	var looked, purged uint64
	err = eachConversation(ctx, s, func(c string) error {
		last, err := s.LastBefore(ctx, c, before.UnixMilli())
		if err != nil || last == 0 {
			looked++
			b.set(looked)
			return err
		}
		n, err := purge(ctx, s, c, 1, last, func(uint64) error { return nil })
		purged += n
		looked++
		b.set(looked)
		return err
	})
	b.clear()
	fmt.Fprintf(out, "%d messages purged, in %d conversations looked at\n", purged, looked)
	return err
}
