package wiretest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A message of MongoDB's wire protocol, all integers little-endian:
//
//	header     length int32 (with itself), request id int32, response to int32, opcode int32
//	OP_MSG     flags uint32, sections, with flagChecksum a uint32 at the end
//	section    0x00, a document: the command or the reply
//	           0x01, size int32 (with itself), a name that ends with 0x00, documents: an array of the command, apart
//	OP_QUERY   flags int32, collection that ends with 0x00, skip int32, limit int32, a document
//	OP_REPLY   flags int32, cursor int64, from int32, count int32, documents
//
// OP_QUERY and OP_REPLY are only used for the first hello of a connection.
const (
	opReply      = 1
	opQuery      = 2004
	opCompressed = 2012
	opMsg        = 2013

	flagChecksum   = 1 << 0
	flagMoreToCome = 1 << 1

	headerSize = 16
	maxMessage = 48_000_000 + 16<<10 // what servers take, and a document's overhead
)

// message is a whole message, with its header.
type message []byte

func (m message) requestID() int32 { return int32(binary.LittleEndian.Uint32(m[4:])) }
func (m message) opcode() int32    { return int32(binary.LittleEndian.Uint32(m[12:])) }

// moreToCome says that the next message of this side follows without an answer of the other.
func (m message) moreToCome() bool {
	return m.opcode() == opMsg && len(m) >= headerSize+4 && binary.LittleEndian.Uint32(m[headerSize:])&flagMoreToCome != 0
}

func readMessage(r io.Reader) (message, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(size[:])
	if n < headerSize || n > maxMessage {
		return nil, fmt.Errorf("a message of %d bytes", n)
	}
	m := make(message, n)
	copy(m, size[:])
	if _, err := io.ReadFull(r, m[4:]); err != nil {
		return nil, err
	}
	return m, nil
}

// sequence is a section of kind 1.
type sequence struct {
	name      string
	documents []bson.Raw
}

var errShort = errors.New("a message ends too early")

// takeDocument takes a document off the front of b.
func takeDocument(b []byte) (bson.Raw, []byte, error) {
	if len(b) < 5 {
		return nil, nil, errShort
	}
	n := binary.LittleEndian.Uint32(b)
	if n < 5 || uint64(n) > uint64(len(b)) {
		return nil, nil, errShort
	}
	doc := bson.Raw(b[:n:n])
	return doc, b[n:], doc.Validate()
}

// takeName takes a string that ends with 0x00 off the front of b.
func takeName(b []byte) (string, []byte, error) {
	for i, c := range b {
		if c == 0 {
			return string(b[:i]), b[i+1:], nil
		}
	}
	return "", nil, errShort
}

// document returns what a message says, and for an OP_MSG what it carries apart.
func (m message) document() (bson.Raw, []sequence, error) {
	b := []byte(m[headerSize:])
	switch m.opcode() {
	case opMsg:
		return sections(b)
	case opQuery:
		if len(b) < 4 {
			return nil, nil, errShort
		}
		_, b, err := takeName(b[4:])
		if err != nil || len(b) < 8 {
			return nil, nil, errShort
		}
		doc, _, err := takeDocument(b[8:])
		return doc, nil, err
	case opReply:
		if len(b) < 20 {
			return nil, nil, errShort
		}
		doc, _, err := takeDocument(b[20:])
		return doc, nil, err
	case opCompressed:
		return nil, nil, errors.New("a compressed message: the address must not ask for compressors")
	}
	return nil, nil, fmt.Errorf("a message with opcode %d", m.opcode())
}

func sections(b []byte) (body bson.Raw, apart []sequence, err error) {
	if len(b) < 4 {
		return nil, nil, errShort
	}
	if binary.LittleEndian.Uint32(b)&flagChecksum != 0 {
		if len(b) < 8 {
			return nil, nil, errShort
		}
		b = b[:len(b)-4]
	}
	for b = b[4:]; len(b) > 0; {
		kind := b[0]
		b = b[1:]
		switch kind {
		case 0:
			if body, b, err = takeDocument(b); err != nil {
				return nil, nil, err
			}
		case 1:
			var s sequence
			if s, b, err = takeSequence(b); err != nil {
				return nil, nil, err
			}
			apart = append(apart, s)
		default:
			return nil, nil, fmt.Errorf("a section of kind %d", kind)
		}
	}
	if body == nil {
		return nil, nil, errors.New("a message without a document")
	}
	return body, apart, nil
}

func takeSequence(b []byte) (s sequence, rest []byte, err error) {
	if len(b) < 4 {
		return s, nil, errShort
	}
	n := binary.LittleEndian.Uint32(b)
	if n < 4 || uint64(n) > uint64(len(b)) {
		return s, nil, errShort
	}
	within, rest := b[4:n], b[n:]
	if s.name, within, err = takeName(within); err != nil {
		return s, nil, err
	}
	for len(within) > 0 {
		var doc bson.Raw
		if doc, within, err = takeDocument(within); err != nil {
			return s, nil, err
		}
		s.documents = append(s.documents, doc)
	}
	return s, rest, nil
}

// newMessage makes an OP_MSG, or for the reply to an OP_QUERY an OP_REPLY.
func newMessage(opcode, requestID, responseTo int32, body bson.Raw, apart []sequence) message {
	m := make(message, headerSize, headerSize+64+len(body))
	binary.LittleEndian.PutUint32(m[4:], uint32(requestID))
	binary.LittleEndian.PutUint32(m[8:], uint32(responseTo))
	binary.LittleEndian.PutUint32(m[12:], uint32(opcode))
	if opcode == opReply {
		m = append(m, 8, 0, 0, 0) // the server can wait for data: always set
		m = append(m, make([]byte, 12)...)
		m = append(m, 1, 0, 0, 0)
		m = append(m, body...)
	} else {
		m = append(m, 0, 0, 0, 0)
		m = append(m, 0)
		m = append(m, body...)
		for _, s := range apart {
			m = appendSequence(m, s)
		}
	}
	binary.LittleEndian.PutUint32(m, uint32(len(m)))
	return m
}

func appendSequence(m message, s sequence) message {
	m = append(m, 1)
	at := len(m)
	m = append(m, 0, 0, 0, 0)
	m = append(m, s.name...)
	m = append(m, 0)
	for _, doc := range s.documents {
		m = append(m, doc...)
	}
	binary.LittleEndian.PutUint32(m[at:], uint32(len(m)-at))
	return m
}
