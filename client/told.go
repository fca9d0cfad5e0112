package client

// noteTold remembers that the app has a change, as far as there is room.
func (b *inbox) noteTold(cv *conversation, changeSeq uint64) {
	switch {
	case changeSeq <= cv.changeSeq || cv.told[changeSeq]:
		return
	case b.told >= b.maxTold:
		b.count.forgotten.Add(1)
		return
	case cv.told == nil:
		cv.told = map[uint64]bool{}
	}
	cv.told[changeSeq] = true
	b.told++
}

// changedUpTo notes that the app has all changes up to a change_seq.
func (b *inbox) changedUpTo(cv *conversation, changeSeq uint64) {
	cv.changeSeq = max(cv.changeSeq, changeSeq)
	b.forgetTold(cv, cv.changeSeq, false)
}

// forgetTold forgets the change_seqs up to one, or all.
func (b *inbox) forgetTold(cv *conversation, upTo uint64, all bool) {
	for seq := range cv.told {
		if all || seq <= upTo {
			delete(cv.told, seq)
			b.told--
		}
	}
}
