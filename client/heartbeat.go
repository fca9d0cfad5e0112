package client

import (
	"time"

	"github.com/parley-im/parley/protocol"
)

// pingID is the request id of every PING: nobody waits for a certain PONG, any frame is a sign of life.
const pingID = 1<<32 - 1

// heartbeat sends PING when nothing was sent, or nothing was heard, for the interval of WELCOME, and ends the connection when
// nothing comes back.
func (k *conn) heartbeat() {
	interval := time.Duration(k.welcome.HeartbeatS) * time.Second
	for {
		due := time.Duration(min(k.sent.Load(), k.heard.Load())) + interval - time.Since(k.born)
		if due <= 0 {
			if !k.ping() {
				return
			}
			continue
		}
		select {
		case <-time.After(due):
		case <-k.done:
			return
		}
	}
}

// ping is false when the connection ended.
func (k *conn) ping() bool {
	select {
	case <-k.life: // of before
	default:
	}
	k.post(protocol.CmdPing, pingID, nil)
	select {
	case <-k.life:
		// Until the PING is written too, so that it is not sent again at once.
		k.sent.Store(int64(time.Since(k.born)))
		return true
	case <-time.After(k.timeout):
		k.fail(errDead)
		return false
	case <-k.done:
		return false
	}
}
