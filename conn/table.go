package conn

import (
	"sync"
	"sync/atomic"

	"github.com/parley-im/parley/protocol"
)

// A session id is a serial number that no other session of the process gets, and the place in the table:
//
//	bit 63              24 23        0
//	    +-----------------+----------+
//	    | serial, from 1  | place    |
//	    +-----------------+----------+
const (
	placeBits = 24
	chunkSize = 4096
	maxChunks = 1 << placeBits / chunkSize
)

// table finds sessions by id. get takes no lock: two loads and a comparison. put and remove, once a connection, take one.
type table struct {
	chunks [maxChunks]atomic.Pointer[[chunkSize]atomic.Pointer[session]]

	mu     sync.Mutex
	serial uint64
	used   uint32   // places given out at least once
	free   []uint32 // places given back
}

// get is nil when the session is gone or never was.
func (t *table) get(id protocol.SessionID) *session {
	place := uint32(id) & (1<<placeBits - 1)
	chunk := t.chunks[place/chunkSize].Load()
	if chunk == nil {
		return nil
	}
	if s := chunk[place%chunkSize].Load(); s != nil && s.ID == id {
		return s
	}
	return nil
}

// put gives s its id. The caller bounds the number of sessions far below 2^24.
func (t *table) put(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var place uint32
	if n := len(t.free); n > 0 {
		place, t.free = t.free[n-1], t.free[:n-1]
	} else {
		place = t.used
		t.used++
	}
	t.serial++
	s.ID = protocol.SessionID(t.serial<<placeBits | uint64(place))
	at := &t.chunks[place/chunkSize]
	if at.Load() == nil {
		at.Store(new([chunkSize]atomic.Pointer[session]))
	}
	at.Load()[place%chunkSize].Store(s)
}

func (t *table) remove(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	place := uint32(s.ID) & (1<<placeBits - 1)
	t.chunks[place/chunkSize].Load()[place%chunkSize].Store(nil)
	t.free = append(t.free, place)
}

// all are the sessions that there are; some may be gone, and others come, before the caller looks.
func (t *table) all() []*session {
	t.mu.Lock()
	used := t.used
	t.mu.Unlock()
	list := make([]*session, 0, used)
	for place := range used {
		if s := t.chunks[place/chunkSize].Load()[place%chunkSize].Load(); s != nil {
			list = append(list, s)
		}
	}
	return list
}
