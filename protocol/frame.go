package protocol

import (
	"encoding/binary"
	"math"
)

// A frame, all integers big-endian:
//
//	offset 0          4      5      6          8              12
//	       +----------+------+------+----------+--------------+---------
//	       | length   | ver  | flags| command  | request id   | body
//	       | u32      | u8   | u8   | u16      | u32          | msgpack
//	       +----------+------+------+----------+--------------+---------
//
// length counts what follows it: 8 + len(body). The first five bytes are the same in every version of the protocol.
const (
	// HeaderSize is the number of bytes before the body.
	HeaderSize = 12
	// Version is the only version there is.
	Version = 1

	lengthSize  = 4
	afterLength = HeaderSize - lengthSize
)

// Header is what stands before a body.
type Header struct {
	Command   Command
	RequestID uint32
}

// Frame is a header and its body. The body aliases the bytes that it was split from.
type Frame struct {
	Header
	Body []byte
}

// Split takes the first frame off b without copying: n is the number of bytes it used, 0 when the frame is not all there
// yet. maxBody bounds the body: a larger one is refused from its header alone. The error is an *Error that carries the code for the
// peer (bad_frame, too_large, unsupported_version); the frame then has the header, for the reply, or zeros where there is none of this
// version. The connection cannot be used after an error.
//
// The answer does not depend on how the bytes arrive: until there is one n is 0, and once there is one more bytes do not change it.
func Split(b []byte, maxBody int) (f Frame, n int, err error) {
	if len(b) < lengthSize {
		return f, 0, nil
	}
	length := binary.BigEndian.Uint32(b)
	if length < afterLength {
		return f, 0, &Error{Code: CodeBadFrame, Message: "length is below 8"}
	}
	if len(b) > 4 && b[4] != Version {
		return f, 0, &Error{Code: CodeUnsupportedVersion, Message: "version is not 1"}
	}
	if len(b) < HeaderSize {
		return f, 0, nil
	}
	f.Command = Command(binary.BigEndian.Uint16(b[6:]))
	f.RequestID = binary.BigEndian.Uint32(b[8:])
	if b[5] != 0 {
		return f, 0, &Error{Code: CodeBadFrame, Message: "flags are not 0"}
	}
	if int64(length) > int64(afterLength)+int64(maxBody) {
		return f, 0, &Error{Code: CodeTooLarge, Message: "body is over the limit"}
	}
	n = lengthSize + int(length)
	if len(b) < n {
		return f, 0, nil
	}
	f.Body = b[HeaderSize:n:n]
	return f, n, nil
}

// AppendFrame appends a whole frame with the body's encoding to dst. A nil body makes an empty one.
func AppendFrame(dst []byte, cmd Command, requestID uint32, body Body) []byte {
	start := len(dst)
	dst = appendHeader(dst, cmd, requestID)
	if body != nil {
		dst = AppendBody(dst, body)
	}
	return finishFrame(dst, start)
}

// AppendRawFrame appends a frame around a body that is encoded already.
func AppendRawFrame(dst []byte, cmd Command, requestID uint32, body []byte) []byte {
	start := len(dst)
	dst = appendHeader(dst, cmd, requestID)
	dst = append(dst, body...)
	return finishFrame(dst, start)
}

func appendHeader(dst []byte, cmd Command, requestID uint32) []byte {
	dst = append(dst, 0, 0, 0, 0, Version, 0)
	dst = binary.BigEndian.AppendUint16(dst, uint16(cmd))
	return binary.BigEndian.AppendUint32(dst, requestID)
}

// finishFrame writes the length of the frame that starts at start. Bodies are bounded far below 4 GiB by every caller; the
// check is here so that a fault of ours can never emit a frame that lies about its length.
func finishFrame(dst []byte, start int) []byte {
	length := len(dst) - start - lengthSize
	if uint64(length) > math.MaxUint32 {
		panic("protocol: frame over 4 GiB")
	}
	binary.BigEndian.PutUint32(dst[start:], uint32(length))
	return dst
}
