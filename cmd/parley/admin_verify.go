package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/parley-im/parley/storage"
)

func newVerify() *cobra.Command {
	var flags storeFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Read a whole store and list what is wrong with it",
		Long: `verify reads everything in a store and prints each thing that cannot be, a line each: a missing message, a bucket of the wrong size, a tail or a count that
does not fit, a row, change or deletion of nothing. It changes nothing, and its exit code is 1 when it found a fault. On a database in use it
may report what was only half-way written when it was read: run it again, or stop the server first, before believing a single fault.`,
		Example: `  parley admin verify --data /var/lib/parley
  PARLEY_MONGO=mongodb://db.example.org/parley parley admin verify --json | jq .verified`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return onStore(cmd, &flags, func(ctx context.Context, s store) error {
				out := faultWriter(&faultLines{w: cmd.OutOrStdout()})
				if asJSON {
					out = &faultJSON{w: cmd.OutOrStdout()}
				}
				return verify(ctx, s, out, cmd.ErrOrStderr())
			})
		},
	}
	flags.register(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object instead")
	annotate(cmd, onlyNow, nil, "json")
	return cmd
}

// faultWriter prints what verify finds.
type faultWriter interface {
	fault(storage.Fault) error
	end(storage.Verified) error
}

func verify(ctx context.Context, s store, out faultWriter, progress io.Writer) error {
	total, err := countConversations(ctx, s)
	if err != nil {
		return err
	}
	b := newBar(progress, "conversations", total)
	var failed error
	done, err := s.Verify(ctx, func(f storage.Fault) {
		b.clear()
		if err := out.fault(f); err != nil && failed == nil {
			failed = err
		}
	}, func(v storage.Verified) { b.set(v.Conversations) })
	b.clear()
	switch {
	case err != nil:
		return fmt.Errorf("the check did not get to its end: %w", err)
	case failed != nil:
		return failed
	}
	if err := out.end(done); err != nil {
		return err
	}
	if done.Faults > 0 {
		return fmt.Errorf("%d faults in the store", done.Faults)
	}
	return nil
}

// faultLines prints for people.
type faultLines struct{ w io.Writer }

func (l *faultLines) fault(f storage.Fault) error {
	where := f.Conversation
	if f.Seq > 0 {
		where = fmt.Sprintf("%s message %d", f.Conversation, f.Seq)
	}
	_, err := fmt.Fprintf(l.w, "%s: %s\n", plain(where), plain(f.What))
	return err
}

func (l *faultLines) end(v storage.Verified) error {
	_, err := fmt.Fprintf(l.w, "%d conversations, %d messages (%d of them gone), %d buckets, %d changes, %d rows: %d faults\n",
		v.Conversations, v.Messages, v.Gone, v.Buckets, v.Changes, v.Rows, v.Faults)
	return err
}

// faultJSON prints one object: {"faults": […], "verified": {…}}.
type faultJSON struct {
	w     io.Writer
	began bool
}

type jsonFault struct {
	Conversation string `json:"conversation"`
	Seq          uint64 `json:"seq,omitempty"`
	What         string `json:"what"`
}

type jsonVerified struct {
	Conversations uint64 `json:"conversations"`
	Messages      uint64 `json:"messages"`
	Gone          uint64 `json:"gone"`
	Buckets       uint64 `json:"buckets"`
	Changes       uint64 `json:"changes"`
	Rows          uint64 `json:"rows"`
	Faults        uint64 `json:"faults"`
}

func (j *faultJSON) fault(f storage.Fault) error {
	text, err := json.Marshal(jsonFault(f))
	if err != nil {
		return err
	}
	before := ",\n "
	if !j.began {
		before = "{\"faults\": [\n "
	}
	j.began = true
	_, err = fmt.Fprintf(j.w, "%s%s", before, text)
	return err
}

func (j *faultJSON) end(v storage.Verified) error {
	text, err := json.Marshal(jsonVerified(v))
	if err != nil {
		return err
	}
	before := "\n],"
	if !j.began {
		before = "{\"faults\": [],"
	}
	_, err = fmt.Fprintf(j.w, "%s \"verified\": %s}\n", before, text)
	return err
}
