package client

// nextWork waits for something to hand on; false when the client stops. A conversation is handed on by one call after the other:
// delivered puts it in the queue again.
func (b *inbox) nextWork() (w work, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.closed {
		switch {
		case len(b.stale) > 0:
			w.stale, w.gen, b.stale = b.stale, b.gen, nil
			return w, true
		case len(b.notes) > 0 && (b.noteNext || len(b.ready) == 0):
			w.note, b.notes[0] = b.notes[0], nil
			b.notes = b.notes[1:]
			b.noteNext = false
			return w, true
		case len(b.ready) > 0:
			cv := b.ready[0]
			b.ready = b.ready[1:]
			b.noteNext = true
			return b.take(cv), true
		}
		b.work.Wait()
	}
	return w, false
}

// take takes out what follows the cursor.
func (b *inbox) take(cv *conversation) work {
	w := work{cv: cv, changes: cv.changes}
	for h := cv.held[cv.cursor+1]; h != nil && len(w.held) < batch; h = cv.held[cv.cursor+1] {
		delete(cv.held, cv.cursor+1)
		w.held = append(w.held, h)
		if h.end > h.m.Seq {
			b.advance(cv, h.end)
		}
		cv.cursor = max(cv.cursor, h.end)
	}
	if b.fetchable(cv) { // the next page comes while the app takes this one
		b.schedule(cv)
	}
	return w
}

// taken notes that the app took one message. It is false when a reset came meanwhile: what follows means nothing any more.
func (b *inbox) taken(cv *conversation, h *held) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range h.acks {
		p.taken()
	}
	if cv.gone {
		return false
	}
	cv.saved = max(cv.saved, h.end)
	b.account(h, -h.size)
	b.noteTold(cv, h.m.ChangeSeq)
	return true
}

// delivered ends the turn of a conversation. ok is false when a reset dropped it. Without all the client is about to stop, and the
// conversation gets no further turn.
func (b *inbox) delivered(cv *conversation, all bool) (p Position, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if cv.gone {
		return p, false
	}
	if all {
		cv.queued = false
		p = cv.position()
		b.schedule(cv)
		return p, true
	}
	return cv.position(), true
}

// position is what State is to know. Without a turn that is going on, or about to, the app has everything up to the cursor.
func (cv *conversation) position() Position {
	if !cv.queued {
		cv.saved = cv.cursor
	}
	return Position{
		ConversationID: cv.id, Seq: cv.saved, KnownSeq: cv.target, ChangeSeq: cv.changeSeq, KnownChangeSeq: cv.changeTarget,
	}
}
