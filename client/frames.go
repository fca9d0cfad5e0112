package client

import (
	"net"

	"github.com/parley-im/parley/protocol"
)

const (
	readBuffer  = 4 << 10
	keepBuffer  = 64 << 10 // a larger buffer is given back once it is empty
	maxGreeting = protocol.HandshakeMaxBody
)

// frames takes frames off a connection. One goroutine uses it at a time.
type frames struct {
	nc    net.Conn
	buf   []byte // what was read: buf[start:end] is not taken yet
	start int
	end   int
	limit int    // of a body
	heard func() // called after each read that got something
}

func newFrames(nc net.Conn, heard func()) *frames {
	return &frames{nc: nc, buf: make([]byte, readBuffer), limit: maxGreeting, heard: heard}
}

// next returns the next frame. Its body is valid until the next call. The buffer grows with the bytes that came, never on the
// word of a length alone.
func (f *frames) next() (protocol.Frame, error) {
	for {
		frame, n, err := protocol.Split(f.buf[f.start:f.end], f.limit)
		if err != nil {
			return frame, err
		}
		if n > 0 {
			f.start += n
			return frame, nil
		}
		if err := f.read(); err != nil {
			return frame, err
		}
	}
}

func (f *frames) read() error {
	f.makeRoom()
	n, err := f.nc.Read(f.buf[f.end:])
	f.end += n
	if n > 0 {
		f.heard()
		return nil // an error that came with bytes comes again
	}
	return err
}

func (f *frames) makeRoom() {
	rest := f.end - f.start
	switch {
	case rest == 0 && len(f.buf) > keepBuffer:
		f.buf = make([]byte, readBuffer)
	case f.start > 0:
		copy(f.buf, f.buf[f.start:f.end])
	case rest == len(f.buf):
		larger := make([]byte, 2*len(f.buf))
		copy(larger, f.buf)
		f.buf = larger
	}
	f.start, f.end = 0, rest
}
