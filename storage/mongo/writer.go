package mongo

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2"

	"github.com/parley-im/parley/storage"
)

// The run-writer. One goroutine takes whatever Appends have gathered, and writes them as one group:
//
//	Append ──▶ queue ──▶ group: the runs of each conversation, in order ──▶ rounds of one bulk each ──▶ all Waits return
//
// A round has at most one write for each conversation in it, all in one unordered bulk, which is one command to the server. What is written is picked by the
// tail alone, that is by the seq of the first message:
//
//	slot 0     insert the bucket, whole: an upsert whose filter matches nothing, so that a bucket that is there is a duplicate key
//	any other  update it: {_id, tail: first-1, not sealed} → $set tail, counts and the slots, all that fit into the bucket
//
// So a stale writer changes nothing: its tail is not the one that is there. What is left of a run that crosses a border goes into the next round, when the
// fill of its old bucket was acknowledged: a crash between the two leaves a conversation that ends at the border.
//
// After a round there are these, for each write in it:
//
//   - It was applied, and acknowledged by a majority.
//   - A duplicate key: the update of the same messages is tried, once. That is good for a bucket that somebody made without messages.
//   - An error that passes, or one command that says that not all updates matched, and not which: what the writers know is dropped. The tails of all these
//     conversations are read again, and the ids in their slots tell what happened. Ours: it was applied, its reply was lost. Others': the run
//     is stale, and refused alone. Below first: nothing happened, and it is tried again, with pauses, for Options.RetryFor.
//   - Any other error is of that one write, and refuses its run alone.
//
// What is read then may be behind what the update met, until a majority has it; then the next try finds the same, and the one after that knows more.
//
// The rows of members are written before their conversation's first messages, each unless it is there. A crash between the two leaves rows of a
// conversation without messages, which is on nobody's list; the repeat finds the rows and adds the messages.
//
// A run says what its tail must be. An update compares it; an insert cannot, so the writer looks before one, unless it remembers that it has filled the bucket
// before. Beside that it only keeps which buckets still carry the newest flag though there is a newer one; the
// next bulk takes the flag off. If that is lost in a crash, whoever reads both flags passes the older one here again.

const (
	groupMessages = 8192    // a group is closed at so many messages
	groupBytes    = 8 << 20 // or bytes of them
	tailsKept     = 1 << 15 // ends of conversations
	flagsKept     = 4096    // flags to be taken off; what does not fit is found again when it is read
)

// writer is the run-writer of a Store.
type writer struct {
	s *Store

	mu      sync.Mutex
	changed *sync.Cond // queue, busy or closed changed
	queue   []*commit
	bytes   int // of what is not settled
	calls   uint64
	closed  bool
	flags   []string // ids of buckets whose flag is to be taken off

	tails   *lru.Cache[string, uint64] // where writes ended, of the conversations written to last: of what was stored once, nothing goes
	refused map[string]uint64          // conversation → the last call that may build on a refused run; the writer's goroutine's
	done    chan struct{}
}

// commit is an Append. It implements storage.Commit.
type commit struct {
	call  uint64
	runs  []*storage.Run
	bytes int
	began time.Time
	done  chan struct{}
	err   error
}

// Wait implements storage.Commit.
func (c *commit) Wait() error {
	<-c.done
	return c.err
}

func startWriter(s *Store) *writer {
	tails, _ := lru.New[string, uint64](tailsKept) // fails only with a size below 1
	w := &writer{s: s, tails: tails, refused: make(map[string]uint64), done: make(chan struct{})}
	w.changed = sync.NewCond(&w.mu)
	go w.run()
	return w
}

// Append implements storage.Buckets. It only queues: see the comment above.
func (s *Store) Append(ctx context.Context, runs []*storage.Run) (storage.Commit, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c := &commit{runs: runs, began: time.Now(), done: make(chan struct{})}
	for _, r := range runs {
		if err := checkRun(r, s.o.MaxBody); err != nil {
			return nil, err
		}
		c.bytes += len(r.Wire) + runOverhead
	}
	return c, s.writer.take(c)
}

// runOverhead is about what a run takes in the queue beside its messages.
const runOverhead = 256

// checkRun refuses what could not be read back, or would let a bucket grow beyond its bound.
func checkRun(r *storage.Run, body int) error {
	switch {
	case r.First == 0:
		return storage.ErrInvalidSeq
	case len(r.Messages) == 0 || r.Conversation == "" || strings.ContainsAny(r.Conversation, "\x00\n"):
		return fmt.Errorf("mongo: a run of %d messages of %q cannot be stored", len(r.Messages), r.Conversation)
	}
	if len(r.Wire) > body { // one of them may be too long
		for _, m := range r.Messages {
			if len(m.Content) > body {
				return fmt.Errorf("mongo: message %d of %s has %d bytes, and the limit is %d", m.Seq, r.Conversation, len(m.Content), body)
			}
		}
	}
	for _, user := range r.Members {
		if user == "" || strings.ContainsAny(user, "\x00\n") {
			return fmt.Errorf("mongo: %q cannot be a member of %s", user, r.Conversation)
		}
	}
	return nil
}

// take queues a commit.
func (w *writer) take(c *commit) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		return storage.ErrClosed
	case w.bytes > 0 && w.bytes+c.bytes > w.s.o.QueueBytes:
		return storage.ErrFull
	}
	w.calls++
	c.call = w.calls
	w.bytes += c.bytes
	w.queue = append(w.queue, c)
	w.changed.Signal()
	return nil
}

// close refuses new commits and waits until the others are settled.
func (w *writer) close() {
	w.mu.Lock()
	w.closed = true
	w.changed.Signal()
	w.mu.Unlock()
	<-w.done
}

func (w *writer) run() {
	defer close(w.done)
	for {
		commits := w.next()
		if len(commits) == 0 {
			return
		}
		w.write(commits)
		w.settle(commits)
	}
}

// next waits for commits, and takes as many as make a group. None: the writer is closed.
func (w *writer) next() []*commit {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.queue) == 0 && !w.closed {
		w.changed.Wait()
	}
	messages, bytes, n := 0, 0, 0
	for n < len(w.queue) && (n == 0 || messages < groupMessages && bytes < groupBytes) {
		for _, r := range w.queue[n].runs {
			messages += len(r.Messages)
		}
		bytes += w.queue[n].bytes
		n++
	}
	commits := append([]*commit(nil), w.queue[:n]...)
	w.queue = append(w.queue[:0], w.queue[n:]...)
	clear(w.queue[len(w.queue):cap(w.queue)])
	return commits
}

// settle lets the Waits return.
func (w *writer) settle(commits []*commit) {
	for _, c := range commits {
		w.s.metrics.commit.Observe(time.Since(c.began).Seconds())
		c.runs = nil
		close(c.done)
		w.mu.Lock()
		w.bytes -= c.bytes
		w.mu.Unlock()
	}
}

// unflag has the newest flag of a bucket taken off with the next bulk. Safe from any goroutine.
func (w *writer) unflag(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.flags {
		if f == id {
			return
		}
	}
	if len(w.flags) < flagsKept {
		w.flags = append(w.flags, id)
	}
}

// takeFlags takes some of what unflag was told.
func (w *writer) takeFlags(most int) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := min(most, len(w.flags))
	ids := append([]string(nil), w.flags[:n]...)
	w.flags = append(w.flags[:0], w.flags[n:]...)
	return ids
}
