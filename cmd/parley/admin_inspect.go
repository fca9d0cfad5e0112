package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

const (
	inspectedSeqs = 200 // at most so many are asked for at once
	shownLines    = 20  // of rows and of buckets, when people read them
	shownContent  = 400 // bytes of a text
)

func newInspect() *cobra.Command {
	var flags storeFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "inspect CONVERSATION [SEQ...]",
		Short: "Show how a conversation and its messages are stored",
		Long: `inspect shows where a conversation stands, the rows of its users, the buckets or runs in which its messages lie, and of the messages that are asked for
everything that is stored: sizes, times, labels, who deleted them for themselves. The content of a message that was taken back is not shown.`,
		Example: `  parley admin inspect p:alice:bob --data /var/lib/parley
  parley admin inspect p:alice:bob 17 18 --json --config /etc/parley.yaml`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			seqs, err := parseInspect(args)
			if err != nil {
				return err
			}
			return onStore(cmd, &flags, func(ctx context.Context, s store) error {
				return inspect(ctx, s, args[0], seqs, asJSON, cmd.OutOrStdout())
			})
		},
	}
	flags.register(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object instead")
	annotate(cmd, onlyNow, nil, "json")
	return cmd
}

func parseInspect(args []string) (seqs []uint64, err error) {
	if err := parseConversation(args[0]); err != nil {
		return nil, err
	}
	if len(args)-1 > inspectedSeqs {
		return nil, fmt.Errorf("%d messages are asked for; give at most %d", len(args)-1, inspectedSeqs)
	}
	for _, text := range args[1:] {
		seq, err := parseSeq(text)
		if err != nil {
			return nil, err
		}
		seqs = append(seqs, seq)
	}
	return seqs, nil
}

func inspect(ctx context.Context, s store, conversation string, seqs []uint64, asJSON bool, out io.Writer) error {
	if _, err := existing(ctx, s, conversation); err != nil {
		return err
	}
	in, err := s.Inspect(ctx, conversation, seqs)
	if err != nil {
		return err
	}
	for i := range in.Slots { // whatever the store gave
		if l := &in.Slots[i].Labels; l.Revoke != nil || l.Gone {
			in.Slots[i].Message.Content, in.Slots[i].Message.Mentions, l.Edit = nil, nil, nil
		}
	}
	if asJSON {
		return inspectJSON(in, out)
	}
	return inspectText(in, seqs, out)
}

// inspectText prints for people.
func inspectText(in *storage.Inspection, seqs []uint64, out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d messages, %d changes; last active %s; counts %d, %d; stamp %d\n",
		in.Conversation, in.State.Tail, in.ChangeSeq, moment(in.State.ActiveMS), in.State.Counts[0], in.State.Counts[1], in.State.Stamp)
	inspectRows(&b, in.Rows)
	inspectBuckets(&b, in.Buckets)
	found := map[uint64]bool{}
	for i := range in.Slots {
		found[in.Slots[i].Message.Seq] = true
		inspectSlot(&b, &in.Slots[i])
	}
	for _, seq := range seqs {
		if !found[seq] {
			fmt.Fprintf(&b, "\nmessage %d: not stored\n", seq)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// table writes lines of cells, the first being their heads.
func table(b *strings.Builder, lines [][]any) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, cells := range lines {
		for i, cell := range cells {
			if i > 0 {
				fmt.Fprint(w, "\t")
			}
			fmt.Fprint(w, cell)
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush() // into memory
}

func inspectRows(b *strings.Builder, rows []storage.InspectedRow) {
	lines := [][]any{{"user", "read", "lowest seen", "deleted", "stamp"}}
	for _, r := range rows[:min(len(rows), shownLines)] {
		lines = append(lines, []any{plain(r.User), r.ReadSeq, r.MinSeq, r.Hidden, r.Stamp})
	}
	fmt.Fprintf(b, "\nrows: %d\n", len(rows))
	if len(rows) == 0 {
		return
	}
	table(b, lines)
	more(b, len(rows))
}

func inspectBuckets(b *strings.Builder, buckets []storage.InspectedBucket) {
	lines := [][]any{{"bucket", "messages", "slots", "layout", "rev", "bytes", ""}}
	for _, k := range buckets[max(0, len(buckets)-shownLines):] {
		sealed := ""
		if k.Sealed {
			sealed = "sealed"
		}
		lines = append(lines, []any{plain(k.ID), fmt.Sprintf("%d-%d", k.First, k.Last), k.Slots, orDash(uint64(k.Layout)), orDash(k.Rev), k.Bytes, sealed})
	}
	fmt.Fprintf(b, "\nbuckets: %d\n", len(buckets))
	if len(buckets) == 0 {
		return
	}
	table(b, lines)
	more(b, len(buckets))
}

// more says that a list was cut.
func more(b *strings.Builder, n int) {
	if n > shownLines {
		fmt.Fprintf(b, "(and %d more; --json has all)\n", n-shownLines)
	}
}

func orDash(n uint64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

func inspectSlot(b *strings.Builder, s *storage.InspectedSlot) {
	m, l := &s.Message, &s.Labels
	fmt.Fprintf(b, "\nmessage %d: in bucket %s, %d bytes, log time %s, counts %d, %d\n",
		m.Seq, plain(s.Bucket), s.Bytes, moment(s.LogTimeMS), s.Counts[0], s.Counts[1])
	if l.Gone {
		b.WriteString("  gone: purged by the operator\n")
		return
	}
	fmt.Fprintf(b, "  from %s, sent %s, id %s, client id %q\n", plain(m.Sender), moment(m.SendTimeMS), m.ServerMsgID, m.ClientMsgID)
	if l.Revoke == nil {
		fmt.Fprintf(b, "  content %s\n", shown(m.ContentType, m.Content))
	}
	if len(m.Mentions) > 0 {
		fmt.Fprintf(b, "  mentions %s\n", plain(strings.Join(m.Mentions, ", ")))
	}
	if r := l.Revoke; r != nil {
		fmt.Fprintf(b, "  taken back by %s (%s) at %s\n", plain(r.User), roleName(r.Role), moment(r.TimeMS))
	}
	if e := l.Edit; e != nil {
		fmt.Fprintf(b, "  edited at %s, content %s\n", moment(e.TimeMS), shown(e.ContentType, e.Content))
	}
	for _, r := range l.Reactions {
		fmt.Fprintf(b, "  reaction %s by %d: %s\n", plain(r.Kind), r.Count, names(r.Users, int(r.Count) > len(r.Users)))
	}
	if l.ChangeSeq > 0 {
		fmt.Fprintf(b, "  latest change %d\n", l.ChangeSeq)
	}
	if len(s.DelList) > 0 || s.DelMore {
		fmt.Fprintf(b, "  deleted for themselves by %s\n", names(s.DelList, s.DelMore))
	}
}

func names(users []string, others bool) string {
	text := plain(strings.Join(users, ", "))
	switch {
	case others && text == "":
		return "others, who are kept beside it"
	case others:
		return text + " and others, who are kept beside it"
	}
	return text
}

// shown is a content as people can read it.
func shown(contentType uint16, content []byte) string {
	if contentType != protocol.ContentText {
		return fmt.Sprintf("of type %d, %d bytes", contentType, len(content))
	}
	if len(content) > shownContent {
		return fmt.Sprintf("of %d bytes: %s …", len(content), plain(string(content[:shownContent])))
	}
	return fmt.Sprintf("of %d bytes: %s", len(content), plain(string(content)))
}

func roleName(r protocol.Role) string {
	switch r {
	case protocol.RoleSender:
		return "sender"
	case protocol.RoleAdmin:
		return "admin"
	case protocol.RoleOwner:
		return "owner"
	case protocol.RoleOperator:
		return "operator"
	}
	return fmt.Sprintf("role %d", r)
}

// moment is a time in milliseconds, in UTC.
func moment(ms int64) string {
	if ms == 0 {
		return "never"
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}
