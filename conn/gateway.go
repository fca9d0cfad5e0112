package conn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/panjf2000/gnet/v2"

	"github.com/parley-im/parley/protocol"
)

// Logic is what the gateway asks of the logic tier.
type Logic interface {
	// Open tells of a connection whose token holds. Logic makes it reachable and then calls Welcome, or else Kick; until then nothing
	// of it is handled. Open may block: it runs on one of a few goroutines for sign-ins. s is shared and never changes.
	Open(s *protocol.Session)
	// Handle takes the frames of one read of one welcomed session, in order. It runs on the event loop and must not block. The
	// bodies are good until it returns.
	Handle(id protocol.SessionID, frames []protocol.Frame)
	// Closed is called exactly once for every Open: after Open returned and after the last Handle. It must not block.
	Closed(id protocol.SessionID)
}

// Gateway holds the connections. Its methods are safe from any goroutine.
type Gateway struct {
	o       Options
	ticks   ticks
	metrics *metrics
	logic   Logic
	addr    net.Addr
	resync  []byte // EVENT resync, whole

	table    table
	conns    atomic.Int64 // open descriptors, those being refused among them
	held     atomic.Int64 // connections that were let in: what the cap is for
	draining atomic.Bool

	loopsMu sync.Mutex
	loops   atomic.Pointer[[]*loop] // each from its first connection on

	engine  gnet.Engine
	lifeMu  sync.RWMutex // held for reading while something is handed to the engine
	stopped bool         // the engine is going, or gone: nothing may be handed to it

	signIns chan signIn
	workers sync.WaitGroup

	started   atomic.Bool
	accepting chan struct{} // closed by the first tick
	first     sync.Once
	done      chan struct{} // closed when the engine is gone
	err       error         // why, before done is closed
	closing   atomic.Bool
	closeOnce sync.Once
}

// New checks the options and registers the metrics. It binds nothing.
func New(o Options) (*Gateway, error) {
	o.setDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	g := &Gateway{o: o, ticks: newTicks(&o), accepting: make(chan struct{}), done: make(chan struct{})}
	g.signIns = make(chan signIn, o.MaxHandshakes)
	g.loops.Store(new([]*loop))
	data := protocol.AppendBody(nil, &protocol.ResyncData{MaxDelayMS: uint32(o.ResyncDelay.Milliseconds())})
	g.resync = protocol.AppendFrame(nil, protocol.CmdEvent, 0, &protocol.Events{Events: []protocol.Event{{Type: protocol.EventResync, Data: data}}})
	var err error
	if g.metrics, err = newMetrics(o.Registerer, func() float64 { return float64(g.conns.Load()) }); err != nil {
		return nil, err
	}
	return g, nil
}

// Start listens, and returns when connections are accepted. It is called once.
func (g *Gateway) Start(l Logic) error {
	if !g.started.CompareAndSwap(false, true) {
		return errors.New("conn: started twice")
	}
	addr, err := freeAddress(g.o.Listen)
	if err != nil {
		close(g.done)
		return err
	}
	g.logic, g.addr = l, addr
	for range signInWorkers() {
		g.workers.Add(1)
		go g.signInWorker()
	}
	go g.serve()
	select {
	case <-g.accepting:
		g.o.Logger.Info("accepting connections", "addr", addr.String(), "loops", g.o.Loops, "max_conns", g.o.MaxConns)
		return nil
	case <-g.done:
		return g.err
	}
}

// freeAddress resolves address to one with a port, on which nobody listens. The engine's loops each listen on it with SO_REUSEPORT, and
// would share it with another server without a word.
func freeAddress(address string) (net.Addr, error) {
	ln, err := net.Listen("tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("address already in use: %s: %w", address, err)
	case err != nil:
		return nil, fmt.Errorf("conn: listen: %w", err)
	}
	addr := ln.Addr()
	return addr, ln.Close()
}

// engineAddress is how the engine is told of an address: [::] means all of IPv6 and nothing else to it, and no host all there is.
func engineAddress(a net.Addr) string {
	if tcp, ok := a.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() && tcp.IP.To4() == nil {
		return fmt.Sprint(":", tcp.Port)
	}
	return a.String()
}

func (g *Gateway) serve() {
	err := gnet.Run(events{g}, "tcp://"+engineAddress(g.addr),
		gnet.WithNumEventLoop(g.o.Loops), gnet.WithReusePort(true), gnet.WithReuseAddr(true),
		gnet.WithTicker(true), gnet.WithLogger(engineLog{g.o.Logger}))
	if err == nil && !g.closing.Load() {
		err = errors.New("conn: the engine stopped by itself; its reason is in the log")
	}
	g.err = err
	close(g.signIns)
	close(g.done)
}

// Addr is the address that is listened on; nil before Start.
func (g *Gateway) Addr() net.Addr { return g.addr }

// Done is closed when the engine has stopped, by Close or by itself, and with it every connection. The process must watch it: a
// gateway that stopped by itself takes no connections any more.
func (g *Gateway) Done() <-chan struct{} { return g.done }

// Err is why the gateway stopped: nil before, and after Close.
func (g *Gateway) Err() error {
	select {
	case <-g.done:
		return g.err
	default:
		return nil
	}
}

// Close stops now: connections are closed as they are, Logic.Closed is called for each, and nothing is running when it returns. It must
// not be called from Logic. Close again does nothing.
func (g *Gateway) Close() error {
	g.closeOnce.Do(func() {
		g.closing.Store(true)
		if !g.started.CompareAndSwap(false, true) {
			g.stopEngine()
			<-g.done
		} else {
			close(g.done)
		}
	})
	<-g.done
	g.workers.Wait() // for Open and Closed
	return nil
}

// stopEngine asks the engine to stop. Its own Stop would look twice a second whether it has; serve knows at once.
func (g *Gateway) stopEngine() {
	select {
	case <-g.accepting:
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = g.engine.Stop(ctx) // the context's error, or that it is stopping already
	case <-g.done:
	}
}

// execute has a loop run f. Once the engine is stopping it does nothing: the engine would write to a descriptor that is closed, and may be
// a file of ours by then.
func (g *Gateway) execute(engine gnet.EventLoop, f func(context.Context) error) {
	g.lifeMu.RLock()
	defer g.lifeMu.RUnlock()
	if g.stopped {
		return
	}
	if err := engine.Execute(context.Background(), gnet.RunnableFunc(f)); err != nil {
		g.o.Logger.Error("event loop takes no work", "err", err)
	}
}

func (g *Gateway) panicked(v any, s *session) {
	g.metrics.panics.Inc()
	g.o.Logger.Error("panic; the connection is closed", "panic", v, "stack", string(debug.Stack()))
	if s != nil {
		s.mu.Lock()
		if s.why == reasonNone {
			s.why = reasonPanic
		}
		s.mu.Unlock()
	}
}
