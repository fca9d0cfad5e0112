package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// operatorName is who takes messages back, as clients see it, beside the operator's role.
const operatorName = "operator"

// revokeTries is how often a change is made anew when another writer was faster.
const revokeTries = 20

func newRevoke() *cobra.Command {
	var flags storeFlags
	cmd := &cobra.Command{
		Use:   "revoke CONVERSATION SEQ",
		Short: "Take a message back, as the operator",
		Long: `revoke takes a message back for everyone, whoever sent it and whenever: people see that the operator took it back, and its content leaves the server no
more. Devices that are online learn of it when they next catch up. The content stays in the store; "admin purge" removes it.`,
		Example: `  parley admin revoke p:alice:bob 17 --data /var/lib/parley`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := parseConversation(args[0]); err != nil {
				return err
			}
			seq, err := parseSeq(args[1])
			if err != nil {
				return err
			}
			return onStore(cmd, &flags, func(ctx context.Context, s store) error {
				return revoke(ctx, s, args[0], seq, time.Now(), cmd.OutOrStdout())
			})
		},
	}
	flags.register(cmd)
	return cmd
}

func revoke(ctx context.Context, s store, conversation string, seq uint64, now time.Time, out io.Writer) error {
	if kind, _, _ := protocol.ParseConversation(conversation); kind == protocol.KindUser {
		return errors.New("the messages of a user's own stream do not change")
	}
	state, err := existing(ctx, s, conversation)
	if err != nil {
		return err
	}
	if seq > state.Tail {
		return fmt.Errorf("%s has no message %d; its newest is %d", conversation, seq, state.Tail)
	}
	for range revokeTries {
		change, done, err := revoking(ctx, s, conversation, seq, now)
		if err != nil {
			return err
		}
		if change == nil {
			fmt.Fprintf(out, "message %d of %s was taken back before\n", seq, conversation)
			return nil
		}
		if err := s.Apply(ctx, []*storage.Change{change}); err != nil {
			return err
		}
		switch {
		case change.Err == nil && done:
			fmt.Fprintf(out, "message %d of %s is taken back; it is change %d of the conversation\n", seq, conversation, change.ChangeSeq)
			return nil
		case change.Err != nil && !errors.Is(change.Err, storage.ErrStale):
			return change.Err
		}
	}
	return fmt.Errorf("the conversation changes all the time, so that message %d could not be taken back; try again", seq)
}

// revoking is the change that takes a message back, nil when it is taken back already. It is not done with a change whose label is there without
// its note: that one is made whole first.
func revoking(ctx context.Context, s store, conversation string, seq uint64, now time.Time) (change *storage.Change, done bool, err error) {
	last, err := s.ChangeSeq(ctx, conversation)
	if err != nil {
		return nil, false, err
	}
	var labels *storage.Labels
	err = s.Slots(ctx, conversation, "", []uint64{seq}, func(slot *storage.Slot) bool {
		labels = &slot.Labels
		return false
	})
	switch {
	case err != nil:
		return nil, false, err
	case labels == nil:
		return nil, false, fmt.Errorf("message %d of %s is missing; run parley admin verify", seq, conversation)
	case labels.Gone:
		return nil, false, fmt.Errorf("message %d of %s was purged", seq, conversation)
	}
	change = &storage.Change{Conversation: conversation, Seq: seq, ChangeSeq: last + 1, TimeMS: now.UnixMilli()}
	if labels.ChangeSeq == change.ChangeSeq {
		change.Labels = *labels
		return change, false, nil
	}
	if labels.Revoke != nil {
		return nil, true, nil
	}
	change.Labels.Revoke = &protocol.Revoke{User: operatorName, Role: protocol.RoleOperator, TimeMS: now.UnixMilli()}
	return change, true, nil
}
