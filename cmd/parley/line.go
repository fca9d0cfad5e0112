package main

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/parley-im/parley/protocol"
)

// line is a message as chat shows it: time, number if that is wanted, sender, text, and what was done to it.
func line(m *protocol.Message, numbered bool, now time.Time) string {
	layout := time.TimeOnly
	at := time.UnixMilli(m.SendTimeMS).In(now.Location())
	if at.Format(time.DateOnly) != now.Format(time.DateOnly) {
		layout = time.DateTime
	}
	number := ""
	if numbered {
		number = fmt.Sprintf("#%d ", m.Seq)
	}
	return fmt.Sprintf("%s %s%s: %s%s", at.Format(layout), number, m.Sender, content(m), doneTo(m))
}

// doneTo is what was done to a message after it was sent.
func doneTo(m *protocol.Message) string {
	text := ""
	if m.EditMS != 0 {
		text = " [edited]"
	}
	for _, r := range m.Reactions {
		text += fmt.Sprintf(" [%s %d]", plain(r.Reaction), r.Count)
	}
	return text
}

func content(m *protocol.Message) string {
	switch {
	case m.Status == protocol.StatusRevoked:
		return "[taken back]"
	case m.ContentType == protocol.ContentText:
		return plain(string(m.Content))
	default:
		return fmt.Sprintf("[content of type %d, %d bytes]", m.ContentType, len(m.Content))
	}
}

// plain makes one line of a text that somebody else wrote, without what a terminal would take for a command or for a turn of
// the writing direction.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case r == '\r' || r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069':
			return -1
		case unicode.IsControl(r) || r == '\u2028' || r == '\u2029':
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(text, string(unicode.ReplacementChar)))
}
