package conn

import (
	"testing"

	"github.com/parley-im/parley/protocol"
)

func TestSignInAndEcho(t *testing.T) {
	g, l := start(t, testOptions(t))
	l.handle = l.echo
	p, w := signInAs(t, g, "ann")
	if w.UserID != "ann" || len(w.SessionID) != 22 || w.Epoch != "e1" || w.ResendS != 300 || w.HeartbeatS != 60 ||
		w.MaxBody != 64<<10 || w.MaxInflight != 32 || w.MaxDown != 512<<10 || w.ServerTimeMS == 0 {
		t.Errorf("WELCOME is %+v", w)
	}
	p.request(protocol.CmdSend, 7, "body")
	if f := p.expect(protocol.CmdSendAck); f.RequestID != 7 || string(f.Body) != "body" {
		t.Errorf("got %+v", f)
	}
	p.request(protocol.CmdPing, 8, "")
	if f := p.expect(protocol.CmdPong); f.RequestID != 8 {
		t.Errorf("got %+v", f)
	}
}
