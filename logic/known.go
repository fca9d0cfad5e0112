package logic

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/parley-im/parley/protocol"
	"github.com/parley-im/parley/storage"
)

// known remembers where the newest messages stand, by id, far beyond the sequencer's horizon: so that a client that was away
// for hours and repeats a SEND gets the first ack and no second message. It is best effort, which it may be: it only keeps records out of
// the log and decides no number. An entry is overwritten when another id falls into its place, and all are gone after a restart.
//
// It is a table of fixed size without locks. Tag and seq of a place may belong to two writers; whoever finds a seq here must hold it
// against the stored message.
type known []knownPlace

type knownPlace struct{ tag, seq atomic.Uint64 }

const knownPlaces = 1 << 20 // 16 MiB when all are in use

func (k known) place(id protocol.MessageID) (p *knownPlace, tag uint64) {
	return &k[spread(tagOf(id))>>32%uint64(len(k))], binary.LittleEndian.Uint64(id[8:])
}

// put notes a message that is durable.
func (k known) put(id protocol.MessageID, seq uint64) {
	p, tag := k.place(id)
	p.tag.Store(tag)
	p.seq.Store(seq)
}

// get returns where the message may stand.
func (k known) get(id protocol.MessageID) (seq uint64, ok bool) {
	p, tag := k.place(id)
	if p.tag.Load() != tag {
		return 0, false
	}
	seq = p.seq.Load()
	return seq, seq != 0
}

// answerKnown acks a SEND that is known to be a repeat. If the stored message says otherwise it is a new one after all, and goes to the log.
func (l *Logic) answerKnown(j job) {
	rec := j.record
	original, err := l.slot(rec.Message.ConversationID, "", j.seq)
	if err == nil && original.Message.ServerMsgID != rec.Message.ServerMsgID {
		if err = unavailable(); !j.repeat { // see recent
			err = l.o.Log.Append(rec)
		}
		if err == nil {
			return
		}
	}
	if err != nil {
		l.refuseOrigin(rec.Origin, err)
		return
	}
	var o outbox
	rec.Message.Seq, rec.Message.SendTimeMS = j.seq, original.Message.SendTimeMS
	o.acks([]*storage.Record{rec})
	l.o.Gateway.Deliver(o.deliveries)
	l.m.repeats.Inc()
}
