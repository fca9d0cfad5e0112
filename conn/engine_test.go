package conn

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/parley-im/parley/protocol"
)

// Parts of the engine that are not used because of what they do, and the one place that writes.
func TestWhatIsNotUsed(t *testing.T) {
	refused := map[string]string{
		"AsyncWrite": "8, 10, 11", "AsyncWritev": "8, 9, 10", "Writev": "9, 10", "SendTo": "10", "ReadFrom": "10", "Next": "2", "Wake": "10",
		"Schedule": "16", "SetDeadline": "16", "Register": "22", "Enroll": "22", "WithLoadBalancing": "22",
		"WithTCPKeepAlive": "19", "Dup": "14", "DupListener": "14",
	}
	writes := 0
	for _, file := range sources(t) {
		for _, d := range file.Decls {
			ast.Inspect(d, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				sel, ok := call.Fun.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if why := refused[sel.Sel.Name]; why != "" && !isMetrics(sel) {
					t.Errorf("%s is used; see %s in doc.go", sel.Sel.Name, why)
				}
				if on, ok := sel.X.(*ast.SelectorExpr); ok && sel.Sel.Name == "Write" && on.Sel.Name == "c" {
					writes++
				}
				return true
			})
		}
	}
	if writes != 1 {
		t.Errorf("%d places write to a connection", writes)
	}
}

// isMetrics tells r.Register of the metrics from the engine's.
func isMetrics(sel *ast.SelectorExpr) bool {
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == "r" && sel.Sel.Name == "Register"
}

func sources(t *testing.T) []*ast.File {
	t.Helper()
	names, err := fs.Glob(os.DirFS("."), "*.go")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	if len(files) < 10 {
		t.Fatalf("only %d files were found", len(files))
	}
	return files
}

func TestDefaultLoops(t *testing.T) {
	o := Options{}
	o.setDefaults()
	if n := runtime.NumCPU(); o.Loops < 1 || o.Loops > max(1, n/2) {
		t.Errorf("%d loops on %d CPUs", o.Loops, n)
	}
}

// signInOnPipe has a welcomed session whose loop works when it is told to.
func signInOnPipe(t *testing.T) (*Gateway, *fakeLogic, *pipe, *session) {
	t.Helper()
	g, l, c := onPipe(t)
	feed(t, g, c, helloFrame(tokenOf(t, "ann"), "d"))
	g.signIn(<-g.signIns)
	c.engine.work(t)
	c.out = wantFrames(t, c.out, protocol.CmdWelcome)
	return g, l, c, c.context.(*session)
}

// The engine closes a connection on which a write fails, and says so to us before Write returns: in a read, in a pass and in a tick.
func TestWriteThatFails(t *testing.T) {
	for name, f := range map[string]func(*Gateway, *pipe, *session){
		"read": func(g *Gateway, c *pipe, _ *session) {
			feed(t, g, c, protocol.AppendRawFrame(nil, protocol.CmdPing, 1, nil))
		},
		"read that logic answers": func(g *Gateway, c *pipe, _ *session) {
			feed(t, g, c, protocol.AppendRawFrame(nil, protocol.CmdSend, 1, nil))
		},
		"pass": func(g *Gateway, c *pipe, s *session) {
			g.Deliver([]protocol.Delivery{{To: []protocol.SessionID{s.ID}, Frames: pushFrame(1, 10)}})
			c.engine.work(t)
		},
		"kick": func(g *Gateway, c *pipe, s *session) {
			g.Kick(s.ID, protocol.Kick{Reason: protocol.KickRemoved})
			c.engine.work(t)
		},
		"bad frame": func(g *Gateway, c *pipe, _ *session) {
			feed(t, g, c, header(7, 1, 0, protocol.CmdSend, 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, l, c, s := signInOnPipe(t)
			l.handle = l.echo
			c.fail = syscall.EPIPE
			f(g, c, s)
			c.engine.work(t)
			if !c.closed || len(c.out) != 0 || l.closes != 1 || g.conns.Load() != 0 || value(g.metrics.panics) != 0 {
				t.Errorf("closed: %v, written: %x, logic told: %d, connections: %d, panics: %v",
					c.closed, c.out, l.closes, g.conns.Load(), value(g.metrics.panics))
			}
			s.l.clock += 1000
			if err := s.l.tick(t.Context()); err != nil || l.closes != 1 {
				t.Errorf("a tick after it: %v, logic told: %d", err, l.closes)
			}
		})
	}
}

// What was queued when the connection closed is not written: the descriptor may be somebody else's. The pipe panics at a late write.
func TestNothingIsWrittenAfterClose(t *testing.T) {
	g, l, c, s := signInOnPipe(t)
	g.Deliver([]protocol.Delivery{{To: []protocol.SessionID{s.ID}, Frames: pushFrame(1, 10)}})
	_ = c.engine.Close(c)
	g.Deliver([]protocol.Delivery{{To: []protocol.SessionID{s.ID}, Frames: pushFrame(2, 10)}})
	s.mu.Lock()
	s.queue([]byte("late")) // even if something got in
	s.mu.Unlock()
	c.engine.work(t)
	if s.pending != nil || l.closes != 1 || value(g.metrics.panics) != 0 {
		t.Errorf("pending: %v, logic told: %d, panics: %v", s.pending, l.closes, value(g.metrics.panics))
	}
	if a := g.table.get(s.ID); a != nil {
		t.Error("it is still in the table")
	}
}
