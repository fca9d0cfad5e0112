package client

import (
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/parley-im/parley/protocol"
)

// inbox knows how far each conversation is, how far it goes, and what of it waits for the app. It decides what happens next to a
// conversation, in schedule: hand on, fetch, or nothing. Everything in it is guarded by mu; nothing in it blocks except
// nextWork and nextFetch.
type inbox struct {
	history  uint64
	maxConvs int
	maxTold  int
	maxBytes int // of pushed messages, and again of fetched ones
	maxNotes int
	count    *counters
	newRetry func() *backoff.ExponentialBackOff

	mu     sync.Mutex
	work   sync.Cond // ready, notes or stale have grown
	fetch  sync.Cond // toFetch has grown, or fetched bytes shrunk
	closed bool
	gen    uint64 // counts resets
	stream string // the id of the user's own stream; "": the user is not known yet
	convs  map[string]*conversation
	told   int // entries in the told of all conversations
	// first: this device knew nothing; until the first list is complete, conversations start with the newest messages only.
	first bool
	// listed: a list was complete, so a conversation that is not known has only come into being.
	listed bool
	// noChanges: the server does not know CHANGES.
	noChanges bool

	ready   []*conversation
	toFetch []*conversation
	stale   []string // for OnStale
	notes   []any    // *protocol.Event and *protocol.Signal
	// noteNext: a conversation had the last turn. Notes and conversations take turns.
	noteNext bool

	pushedBytes  int
	fetchedBytes int
}

// conversation is what is known of one.
type conversation struct {
	id    string
	gone  bool // dropped by a reset: whoever still has it leaves it alone
	known bool // cursor means something
	// cursor: everything up to here was taken out for the app, or has nothing to show. saved: and the app has taken it.
	cursor, saved uint64
	target        uint64 // the highest seq that is known to exist
	lowest        uint64 // the lowest seq that was pushed before the conversation was known; 0: none
	held          map[uint64]*held

	// pullTo: a copy of a message up to here that was pushed, or pulled before stamp grew, may be older than what the app, or this
	// inbox, knows already. Such a copy is not taken; the message is pulled.
	pullTo, stamp uint64
	// ask: it goes further, nobody said how far.
	ask bool

	changeSeq, changeTarget uint64
	changes                 []protocol.Message // fetched, for the app
	changesNext             uint64             // changeSeq once the app took them
	changesSize             int                // of changes, in bytes
	askChanges              bool               // changes go further, nobody said how far
	stale                   bool               // the app is to be told that there were more changes than the server tells, up to staleTo
	staleTo                 uint64
	told                    map[uint64]bool // change_seqs above changeSeq that the app has: in messages that were handed on

	queued    bool // in ready, or being handed on
	waiting   bool // in toFetch
	fetching  bool
	fruitless int // replies in a row that brought nothing
	retry     *backoff.ExponentialBackOff
	timer     *time.Timer // until the next attempt to fetch
}

// held is a message that waits for its turn, or stands for a run of seqs that have nothing to show.
type held struct {
	m      protocol.Message
	end    uint64 // its last seq
	size   int
	pulled bool
	acks   []*pushed
}

// pushed is a PUSH of which the app has not taken everything yet.
type pushed struct {
	k    *conn
	id   uint32
	left int
}

const (
	messageOverhead = 256 // bytes that a held message is counted for beside its content
	maxAcks         = 4   // PUSHes of one message that are acked
	maxNotes        = 256
	maxFruitless    = 5
	maxTold         = 1 << 16
)

func newInbox(o *Options, count *counters) *inbox {
	b := &inbox{
		history: uint64(o.History), maxConvs: o.MaxConversations, maxBytes: max(o.HoldBytes/2, 1), maxNotes: maxNotes, maxTold: maxTold, count: count,
		convs: map[string]*conversation{}, first: true,
	}
	b.work.L, b.fetch.L = &b.mu, &b.mu
	b.newRetry = o.newBackoff
	return b
}

func (b *inbox) load(s Saved) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.first = s.Session.Token == ""
	b.listed = !b.first
	if s.Session.User != "" {
		b.stream = protocol.UserStream(s.Session.User)
	}
	if s.Session.Stale {
		b.stale = []string{""}
		b.work.Signal()
	}
	for _, p := range s.Positions {
		cv := b.conversation(p.ConversationID)
		if cv == nil {
			continue
		}
		cv.known, cv.cursor, cv.saved, cv.target = true, p.Seq, p.Seq, max(p.KnownSeq, p.Seq)
		cv.changeSeq, cv.changeTarget = p.ChangeSeq, max(p.KnownChangeSeq, p.ChangeSeq)
		b.schedule(cv)
	}
}

func (b *inbox) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.work.Broadcast()
	b.fetch.Broadcast()
}

// welcome is called with the user of each new connection, before anything is read from it. It returns how many resets there were.
func (b *inbox) welcome(user string) (gen uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stream = protocol.UserStream(user)
	return b.gen
}

// reset drops everything: the server's history is another one.
func (b *inbox) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, cv := range b.convs {
		cv.gone = true
	}
	clear(b.convs)
	b.gen++
	b.first, b.listed = true, false
	b.ready, b.toFetch, b.notes = nil, nil, nil
	b.pushedBytes, b.fetchedBytes, b.told = 0, 0, 0
	b.stale = []string{""}
	b.work.Signal()
}

// connected is called for each new connection: its server may know what the last one did not.
func (b *inbox) connected() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.noChanges {
		return
	}
	b.noChanges = false
	for _, cv := range b.convs {
		b.schedule(cv)
	}
}

// conversation finds or makes one; nil when there is no room for another. For the own stream there always is.
func (b *inbox) conversation(id string) *conversation {
	cv := b.convs[id]
	if cv != nil {
		return cv
	}
	if len(b.convs) >= b.maxConvs && id != b.stream {
		b.count.ignored.Add(1)
		return nil
	}
	cv = &conversation{id: id, held: map[uint64]*held{}}
	b.convs[id] = cv
	return cv
}

// schedule decides what happens next to a conversation. It is called after every change to one.
func (b *inbox) schedule(cv *conversation) {
	if cv.gone || !cv.known && !b.discover(cv) {
		return
	}
	if cv.deliverable() && !cv.queued {
		cv.queued = true
		b.ready = append(b.ready, cv)
		b.work.Signal()
	}
	if b.fetchable(cv) {
		cv.waiting = true
		b.toFetch = append(b.toFetch, cv)
		b.fetch.Signal()
	}
}

func (cv *conversation) deliverable() bool {
	return cv.held[cv.cursor+1] != nil || len(cv.changes) > 0
}

// fetchable tells whether something is missing that no other goroutine is about to get.
func (b *inbox) fetchable(cv *conversation) bool {
	if cv.waiting || cv.fetching || cv.timer != nil {
		return false
	}
	return cv.missing() || cv.ask || b.changed(cv)
}

func (cv *conversation) missing() bool {
	return cv.cursor < cv.target && cv.held[cv.cursor+1] == nil
}

func (b *inbox) changed(cv *conversation) bool {
	return !b.noChanges && !cv.stale && (cv.askChanges || cv.changeSeq < cv.changeTarget) && len(cv.changes) == 0
}

// discover gives a conversation that only a push or an ack has told of a cursor, once the list is complete: then it has come
// into being since, and everything in it is new. On a device that knew nothing the list's pages may have missed it.
func (b *inbox) discover(cv *conversation) bool {
	if !b.listed {
		return false
	}
	if b.first {
		before := cv.target
		if cv.lowest > 0 {
			before = cv.lowest - 1
		}
		cv.cursor = before - min(before, b.historyOf(cv))
	}
	cv.known, cv.saved = true, cv.cursor
	return true
}

// historyOf is how many of the newest messages a device that knew nothing fetches. What the own stream says is in the rest already.
func (b *inbox) historyOf(cv *conversation) uint64 {
	if cv.id == b.stream {
		return 0
	}
	return b.history
}
