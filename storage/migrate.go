package storage

import (
	"context"
	"errors"
	"fmt"
)

// Step is a part of a migration.
type Step uint8

// The steps, in their order.
const (
	StepCount  Step = 1
	StepCopy   Step = 2
	StepVerify Step = 3
)

// Migrated is how far a migration is.
type Migrated struct {
	Step          Step
	Conversations uint64 // done in this step, with those of earlier runs
	Messages      uint64
	Total         uint64 // messages in all; known from StepCopy on
}

// Migrate copies everything into to and then holds every conversation of both against each other. It can be repeated after any error and goes on where it
// ended. progress is called after each conversation of each step.
func Migrate(ctx context.Context, from Source, to Target, progress func(Migrated)) (Migrated, error) {
	m := &migration{from: from, to: to, progress: progress}
	for _, step := range []func(context.Context) error{m.begin, m.count, m.copy, m.signOuts, m.verify, to.Finish} {
		if err := step(ctx); err != nil {
			return m.at, err
		}
	}
	return m.at, nil
}

type migration struct {
	from     Source
	to       Target
	progress func(Migrated)
	after    string
	at       Migrated
}

func (m *migration) begin(ctx context.Context) error {
	epoch, err := m.from.Epoch(ctx)
	if err != nil {
		return err
	}
	last, err := m.from.LastStamp(ctx)
	if err != nil {
		return err
	}
	m.after, err = m.to.Begin(ctx, epoch, last)
	return err
}

// done notes a conversation.
func (m *migration) done(step Step, messages uint64) {
	if m.at.Step != step {
		m.at = Migrated{Step: step, Total: m.at.Total}
	}
	m.at.Conversations++
	m.at.Messages += messages
	if step == StepCount {
		m.at.Total += messages
	}
	m.progress(m.at)
}

// each calls f for all conversations of the source. Those that it gets together are few enough to hold, and the listing does not stay open
// while f works.
func (m *migration) each(ctx context.Context, f func(conversation string) error) error {
	const together = 1000
	after := ""
	for {
		var page []string
		err := m.from.Conversations(ctx, after, func(c string) bool {
			page = append(page, c)
			return len(page) < together
		})
		if err != nil || len(page) == 0 {
			return err
		}
		for _, c := range page {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := f(c); err != nil {
				return err
			}
		}
		after = page[len(page)-1]
	}
}

func (m *migration) count(ctx context.Context) error {
	return m.each(ctx, func(c string) error {
		state, err := m.from.State(ctx, c)
		if err == nil {
			m.done(StepCount, state.Tail)
		}
		return err
	})
}

func (m *migration) copy(ctx context.Context) error {
	return m.each(ctx, func(c string) error {
		a, err := m.from.Archive(ctx, c)
		if err != nil {
			return err
		}
		if c > m.after {
			if err := m.to.Put(ctx, m.from, a); err != nil {
				return fmt.Errorf("copying %s: %w", c, err)
			}
		}
		m.done(StepCopy, a.State.Tail)
		return nil
	})
}

func (m *migration) signOuts(ctx context.Context) error {
	var list []SignOut
	err := m.from.SignOuts(ctx, func(s SignOut) bool {
		list = append(list, s)
		return true
	})
	if err != nil {
		return err
	}
	return m.to.PutSignOuts(ctx, list)
}

// ErrDiffers says that a copy is not what it was made from.
var ErrDiffers = errors.New("storage: the copy differs from what it was made from")

// verify reads both stores.
func (m *migration) verify(ctx context.Context) error {
	var conversations uint64
	err := m.each(ctx, func(c string) error {
		sum, err := SumConversation(ctx, m.from, c)
		if err != nil {
			return err
		}
		of, err := SumConversation(ctx, m.to, c)
		if err != nil {
			return err
		}
		if of != sum {
			return fmt.Errorf("%w: %s is %v there, and %v here", ErrDiffers, c, of, sum)
		}
		conversations++
		m.done(StepVerify, sum.Messages)
		return nil
	})
	if err != nil {
		return err
	}
	return m.verifyRest(ctx, conversations)
}

// verifyRest looks for conversations that are only in the copy, and holds the sign-outs against each other.
func (m *migration) verifyRest(ctx context.Context, conversations uint64) error {
	var there uint64
	err := m.to.Conversations(ctx, "", func(string) bool {
		there++
		return true
	})
	if err != nil {
		return err
	}
	if there != conversations {
		return fmt.Errorf("%w: %d conversations are there, and %d here", ErrDiffers, there, conversations)
	}
	sum, err := sumSignOuts(ctx, m.from)
	if err != nil {
		return err
	}
	of, err := sumSignOuts(ctx, m.to)
	if err == nil && of != sum {
		err = fmt.Errorf("%w: of the devices that are signed out", ErrDiffers)
	}
	return err
}
