//go:build linux

package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"
)

// echoed handles a SEND that the echo server gave back.
func (s *talk) echoed(ln *lane, request uint32, body []byte) error {
	head := len(ln.frame.head) - idAt + 2 // of the body, up to the content
	if len(body) != head+s.size+len(ln.frame.tail) {
		return errors.New("an echo of another length")
	}
	id, ok := parseID(body[2 : 2+idLen])
	sl, k := ln.answered(request)
	if !ok || sl == nil || sl.index != id.index || ln.c.id != id.sender {
		s.checks.Stray++
		return nil
	}
	if !filled(body[head:head+s.size], seedOf(id.sender, id.index)) {
		s.checks.Corrupt++
	}
	ln.free = append(ln.free, k)
	s.acked++
	ln.peer.from.see(id.index)
	if s.measured {
		s.ack.record(int64(s.nowUS - id.timeUS))
	}
	return nil
}

// EchoOptions say how to run the echo.
type EchoOptions struct {
	Conns    int
	Window   int
	Size     int           // of the content; the frames are those of chat
	Duration time.Duration // measured, after a warm-up of a fifth of it
	Loops    int           // event loops of the harness; 0: DefaultLoops
	// Command starts the echo server: it must print "listening on ADDRESS" and end when its input does, as ServeEcho does.
	Command []string
}

// Echo runs the chat frames against an echo server in a process of its own. What it reaches is what this machine, this kernel and
// this harness can do when the server does nothing but read and write.
func Echo(ctx context.Context, o EchoOptions) (*EchoResult, error) {
	addr, pid, stop, err := startEcho(ctx, o.Command)
	if err != nil {
		return nil, err
	}
	defer stop()
	var talks []*talk
	f, err := newFleet(fleetOptions{addr: addr, conns: o.Conns, loops: loopsOr(o.Loops), scene: func(l *loop, _ float64) scene {
		t := newTalk(l, o.Window, o.Size)
		talks = append(talks, t)
		return t
	}})
	if err != nil {
		return nil, err
	}
	f.launch(ctx)
	m, err := measure(f, load{warmup: o.Duration / 5, duration: o.Duration, drain: 5 * time.Second, pid: pid})
	if err := errors.Join(err, f.stop()); err != nil {
		return nil, fmt.Errorf("echo: %w", err)
	}
	r := &EchoResult{Measured: m, Latency: talksAck(talks).latency()}
	for _, t := range talks {
		ck := t.finish()
		r.Checks.add(&ck)
	}
	return r, nil
}

// startEcho starts the server's process. stop ends it.
func startEcho(ctx context.Context, command []string) (addr string, pid int, stop func(), err error) {
	if len(command) == 0 {
		return "", 0, nil, errors.New("echo: no command for the server")
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // the caller names the program
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", 0, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", 0, nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", 0, nil, fmt.Errorf("echo server: %w", err)
	}
	stop = func() {
		_ = in.Close() // this is what ends it
		_ = cmd.Wait() // its exit code says nothing
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !ok {
		stop()
		return "", 0, nil, fmt.Errorf("echo server: it said %q: %w", line, err)
	}
	return addr, cmd.Process.Pid, stop, nil
}

// echoServer gives back whatever comes, with one write for all that one read brought.
type echoServer struct {
	gnet.BuiltinEventEngine
	out    io.Writer
	engine chan gnet.Engine
}

func (e *echoServer) OnBoot(eng gnet.Engine) gnet.Action {
	fd, err := eng.Dup()
	if err != nil {
		return gnet.Shutdown
	}
	sa, err := unix.Getsockname(fd)
	_ = unix.Close(fd) // a duplicate
	in4, ok := sa.(*unix.SockaddrInet4)
	if err != nil || !ok {
		return gnet.Shutdown
	}
	addr := net.TCPAddr{IP: in4.Addr[:], Port: in4.Port}
	e.engine <- eng
	if _, err := fmt.Fprintln(e.out, "listening on", addr.String()); err != nil {
		return gnet.Shutdown
	}
	return gnet.None
}

func (e *echoServer) OnTraffic(c gnet.Conn) gnet.Action {
	b, err := c.Peek(-1)
	if err != nil {
		return gnet.Close
	}
	if _, err := c.Write(b); err != nil {
		return gnet.None // gnet has closed it already
	}
	if _, err := c.Discard(len(b)); err != nil {
		return gnet.Close
	}
	return gnet.None
}

// silent is a logger of gnet's that keeps stdout, where it would write, for the address. Run returns the errors.
type silent struct{}

func (silent) Debugf(string, ...any) {}
func (silent) Infof(string, ...any)  {}
func (silent) Warnf(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(string, ...any) {}

// ServeEcho is the echo server's process: it listens on a free port of 127.0.0.1, prints "listening on ADDRESS" to out, and returns when in
// ends.
func ServeEcho(ctx context.Context, in io.Reader, out io.Writer) error {
	e := &echoServer{out: out, engine: make(chan gnet.Engine, 1)}
	done := make(chan error, 1)
	go func() {
		done <- gnet.Run(e, "tcp://127.0.0.1:0", gnet.WithNumEventLoop(1), gnet.WithTCPNoDelay(gnet.TCPNoDelay), gnet.WithLogger(silent{}))
	}()
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, in) // any end will do
		close(ended)
	}()
	select {
	case err := <-done:
		return errors.Join(errors.New("echo server ended"), err)
	case <-ended:
	case <-ctx.Done():
	}
	select {
	case eng := <-e.engine:
		return errors.Join(eng.Stop(context.WithoutCancel(ctx)), <-done)
	case err := <-done:
		return err
	}
}
