package logic

import (
	"context"
	"errors"
	"sync"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// The sequencer. There is no counter service: the log is the order, and the worker that owns a partition gives out tail + 1, + 2 … as
// it reads. For each partition two goroutines work hand in hand:
//
//	log ──▶ Process: number, find repeats, encode, start the write ──▶ commits (a few) ──▶ finish: wait for the fsync, answer, push
//
//  1. Process takes whatever has gathered since the last call. Each record's conversation is looked up, or loaded from its newest messages. A record
//     whose id is within the horizon (recent.go) is a repeat: it gets no number. Any other gets tail + 1.
//  2. The messages of a conversation in the batch become one Run, encoded once, in the form in which they are pushed.
//  3. Append starts the write: for the embedded store one batch and one fsync for all of it. While it is on its way Process goes on with
//     the next batch, on the strength of the tails in memory. Batches become durable in order.
//  4. finish waits for the fsync, then answers the senders, repeats too, and pushes. So nothing is acked or shown that could still be
//     lost, and a repeat's ack never overtakes its original's commit.
//
// After a crash in 1 or 2 nothing has happened: the sender has no answer and sends again. In 3 the batch is on the disk or it is not;
// if it is, the sender's repeat finds its id among the newest messages, which are read back with the conversation. In 4 the same: the
// ack or the push is lost, the message is not; the device learns of it by SYNC.
//
// When a write is refused (disk full, closed, a stale tail) the tails in memory are ahead of the store. Then the pipeline is let run
// empty, what is remembered of the conversations in the batch is dropped, and their senders get unavailable. The next record loads them again. The pipeline
// must be empty first because a load sees only what is durable.
//
// Tried and dropped: a timer to let batches grow (whatever gathers during an fsync is batch enough, and a lone message does not
// wait); one goroutine for both halves (the fsync then stands still while messages are encoded, a third less throughput).

const (
	maxBatchMessages = 4096    // a batch's messages, so that its ack is not late because of the others
	maxBatchBytes    = 8 << 20 // and their encoded size, roughly
	maxRunMessages   = 512     // a run is read as a whole
	maxRunBytes      = 1 << 20 //
	commitsInFlight  = 3       // batches between Process and finish
	conversationSize = 400     // bytes of a conversation's state without its ring, roughly
	wireEstimate     = 200     // bytes of a message's encoding without its content, at most
)

// sequencers has one sequencer for each partition. It implements storage.Consumer.
type sequencers struct {
	l    *Logic
	mu   sync.Mutex
	list map[int]*sequencer
}

func newSequencers(l *Logic) *sequencers {
	return &sequencers{l: l, list: make(map[int]*sequencer)}
}

// Process implements storage.Consumer.
func (q *sequencers) Process(partition int, recs []*storage.Record) { q.get(partition).process(recs) }

func (q *sequencers) get(partition int) *sequencer {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.list[partition]
	if s == nil {
		s = newSequencer(q.l)
		q.list[partition] = s
	}
	return s
}

// close waits until every batch is finished. No Process runs any more.
func (q *sequencers) close() {
	for _, s := range q.list {
		close(s.commits)
		<-s.finished
		s.changer.close()
	}
}

// sequencer numbers the messages of one partition. Its fields belong to the goroutine that calls process, but for those of finish.
type sequencer struct {
	l       *Logic
	states  stateCache
	batch   *batch      // being filled
	commits chan *batch // to finish, in order
	free    chan *batch // back from finish, to be filled again
	changer *changer

	stale    sync.Map // conversation id → struct{}: finish saw a write refused; process drops them
	finished chan struct{}
}

// batch is what goes into one Append, and what is to be done after it. Batches are used again, with their memory.
type batch struct {
	parts    []*part
	runs     []*storage.Run // those of the parts that have one
	wire     []byte         // the runs' encodings, one after the other
	messages int            // records, repeats too
	size     int            // bytes of content
	commit   storage.Commit
	done     chan struct{} // set on a barrier: closed by finish
	out      outbox
}

// part is a conversation's share of a batch.
type part struct {
	c       *conversation
	run     storage.Run
	recs    []*storage.Record // one for each of run.Messages
	ends    []int             // where each message ends in run.Wire
	bytes   int               // of the run, roughly
	repeats []repeat
	refused bool // the run was not stored
}

// repeat is a record that is stored already, at seq.
type repeat struct {
	rec *storage.Record
	seq uint64
}

func (p *part) wireStart(i int) int {
	if i == 0 {
		return 0
	}
	return p.ends[i-1]
}

// part adds a share for c, from memory of an earlier batch if there is any.
func (b *batch) part(c *conversation) *part {
	if len(b.parts) == cap(b.parts) {
		b.parts = append(b.parts, nil)
	} else {
		b.parts = b.parts[:len(b.parts)+1]
	}
	p := b.parts[len(b.parts)-1]
	if p == nil {
		p = &part{}
		b.parts[len(b.parts)-1] = p
	}
	p.c = c
	return p
}

func newSequencer(l *Logic) *sequencer {
	s := &sequencer{
		l: l, commits: make(chan *batch, commitsInFlight), free: make(chan *batch, commitsInFlight+2), finished: make(chan struct{}),
	}
	s.states.limit = l.o.StateBytes
	s.changer = newChanger(l)
	s.batch = s.newBatch()
	go s.finish()
	return s
}

func (s *sequencer) newBatch() *batch {
	select {
	case b := <-s.free:
		return b
	default:
		return &batch{}
	}
}

// process numbers recs, in as many batches as their size asks for.
func (s *sequencer) process(recs []*storage.Record) {
	s.dropStale()
	for _, rec := range recs {
		if s.full(rec) {
			s.flush()
		}
		s.place(rec)
	}
	s.flush()
}

// full tells whether rec must go into the next batch.
func (s *sequencer) full(rec *storage.Record) bool {
	b := s.batch
	if b.messages >= maxBatchMessages || b.size > maxBatchBytes {
		return true
	}
	c := s.states.peek(rec.Message.ConversationID)
	return c != nil && c.part != nil && c.part.full(rec.LogTimeMS)
}

// full tells whether a record of logTimeMS must not go into the part's run any more.
func (p *part) full(logTimeMS int64) bool {
	return len(p.recs) > 0 && (len(p.recs) >= maxRunMessages || p.bytes > maxRunBytes || p.run.LogTimeMS != logTimeMS)
}

// place gives a record its seq: a new one, or that of the message it repeats. A change of a message goes to the changer.
func (s *sequencer) place(rec *storage.Record) {
	if rec.Intent != nil {
		s.changer.queue <- rec
		return
	}
	c, err := s.states.get(rec.Message.ConversationID, func(id string) (*conversation, error) { return s.load(id, rec.LogTimeMS) })
	if err != nil {
		s.l.refuseOrigin(rec.Origin, err)
		return
	}
	b := s.batch
	if c.part == nil {
		c.part = b.part(c)
		c.pending.Add(1)
	}
	b.messages++
	if seq, ok := c.recent.find(rec.ID, rec.LogTimeMS); ok {
		c.part.repeats = append(c.part.repeats, repeat{rec: rec, seq: seq})
		return
	}
	if len(c.part.recs) == 0 {
		c.startRun(rec.LogTimeMS)
		b.runs = append(b.runs, &c.part.run)
	}
	before := c.recent.bytes()
	c.append(rec)
	s.states.used += c.recent.bytes() - before
	b.size += len(rec.Message.Content)
}

// load reads a conversation's state back from its newest messages.
func (s *sequencer) load(id string, logTimeMS int64) (*conversation, error) {
	ctx := context.Background()
	s.l.m.stateLoads.Inc()
	state, err := s.l.o.Buckets.State(ctx, id)
	if err != nil {
		return nil, err
	}
	c := &conversation{id: id, counts: state.Counts, activeMS: state.ActiveMS}
	var kind protocol.ConversationKind
	if kind, c.users[0], c.users[1] = protocol.ParseConversation(id); kind == protocol.KindUser {
		c.users[1] = c.users[0]
	}
	c.recent, err = loadRecent(state.Tail, logTimeMS, func(yield func(storage.RecentID) bool) error {
		if state.Tail == 0 {
			return nil
		}
		return s.l.o.Buckets.Recent(ctx, id, yield)
	})
	return c, err
}

// flush starts the batch's write and hands it to finish.
func (s *sequencer) flush() {
	b := s.batch
	if b.messages == 0 {
		return
	}
	b.encode()
	for _, p := range b.parts {
		p.c.part = nil
	}
	if len(b.runs) > 0 {
		commit, err := s.l.o.Buckets.Append(context.Background(), b.runs)
		if err != nil {
			s.refuse(b, err)
			return
		}
		b.commit = commit
	}
	s.l.m.batchMessages.Observe(float64(b.messages))
	s.commits <- b
	s.batch = s.newBatch()
	s.states.evict()
}

// refuse answers a batch of which nothing was stored, and forgets its conversations, whose tails in memory are wrong now.
func (s *sequencer) refuse(b *batch, err error) {
	s.drain()
	for _, p := range b.parts {
		s.l.refuseAll(p, err)
		s.states.drop(p.c.id)
	}
	b.reset()
}

// refuseAll tells the senders whose messages, or the originals of whose repeats, were not stored.
func (l *Logic) refuseAll(p *part, err error) {
	for _, rec := range p.recs {
		l.refuseOrigin(rec.Origin, err)
	}
	for _, r := range p.repeats {
		l.refuseOrigin(r.rec.Origin, err)
	}
}

// drain waits until finish has nothing left to do.
func (s *sequencer) drain() {
	barrier := &batch{done: make(chan struct{})}
	s.commits <- barrier
	<-barrier.done
}

// dropStale forgets the conversations of which finish saw a write refused.
func (s *sequencer) dropStale() {
	drained := false
	s.stale.Range(func(key, _ any) bool {
		if !drained {
			s.drain()
			drained = true
		}
		s.stale.Delete(key)
		s.states.drop(key.(string))
		return true
	})
}

// encode writes every run's messages as they are pushed, and as they may be stored.
func (b *batch) encode() {
	for _, p := range b.parts {
		base := len(b.wire)
		for _, m := range p.run.Messages {
			b.wire = protocol.AppendBody(b.wire, m)
			p.ends = append(p.ends, len(b.wire)-base)
		}
	}
	start := 0
	for _, p := range b.parts { // the slices are taken when wire has stopped growing
		end := start + p.wireStart(len(p.ends))
		p.run.Wire = b.wire[start:end]
		start = end
	}
}

// maxKeptWire is the largest buffer that a batch keeps for the next one.
const maxKeptWire = 4 << 20

// reset empties the batch, keeps its memory, and lets go of everything else.
func (b *batch) reset() {
	for _, p := range b.parts {
		p.reset()
	}
	clear(b.runs)
	b.parts, b.runs, b.wire = b.parts[:0], b.runs[:0], b.wire[:0]
	if cap(b.wire) > maxKeptWire {
		b.wire = nil
	}
	b.messages, b.size, b.commit = 0, 0, nil
	b.out.reset()
}

func (p *part) reset() {
	clear(p.recs)
	clear(p.run.Messages)
	clear(p.repeats)
	*p = part{recs: p.recs[:0], ends: p.ends[:0], repeats: p.repeats[:0], run: storage.Run{Messages: p.run.Messages[:0]}}
}

// finish waits for each batch's write, in order, and then does what follows from it.
func (s *sequencer) finish() {
	defer close(s.finished)
	for b := range s.commits {
		if b.done != nil {
			close(b.done)
			continue
		}
		s.complete(b)
		for _, p := range b.parts {
			p.c.pending.Add(-1)
		}
		b.reset()
		select {
		case s.free <- b:
		default:
		}
	}
}

func (s *sequencer) complete(b *batch) {
	var err error
	if b.commit != nil {
		err = b.commit.Wait()
	}
	for _, p := range b.parts {
		if why := errors.Join(err, p.run.Err); why != nil && len(p.recs) > 0 {
			s.refused(p, why)
		}
	}
	s.l.emit(b)
}

// refused answers a part that was not stored, or not for certain, and has process forget its conversation.
func (s *sequencer) refused(p *part, why error) {
	p.refused = true
	s.stale.Store(p.c.id, struct{}{})
	s.l.log.Error("messages not stored, their senders are told to repeat them", "conversation", p.c.id, "err", why)
	s.l.refuseAll(p, storage.ErrStale)
}
