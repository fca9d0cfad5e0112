package wiretest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const (
	patience       = 20 * time.Second // for a server that is near
	maxConnections = 1000
)

// Proxy stands between a driver and a server. Its methods are safe from any goroutine.
type Proxy struct {
	server   string      // address
	secure   *tls.Config // nil: the server speaks plainly
	uri      string
	listener net.Listener
	closing  chan struct{}
	wg       sync.WaitGroup
	replies  atomic.Int32 // ids of replies that the proxy made

	mu       sync.Mutex
	rules    []*Rule
	links    map[*link]struct{}
	accepted int64
	down     bool
	counts   map[countKey]Count
	state    bson.RawValue // "topologyVersion" of the latest hello
	faults   []error       // of the proxy, or of what drivers sent
}

// Start starts a proxy in front of the server at the URI; of a replica set, in front of its primary. It ends with the test, after
// whatever the test gave to Cleanup later. It is called from the test's goroutine.
func Start(tb testing.TB, uri string) *Proxy {
	tb.Helper()
	p, err := start(tb.Context(), uri)
	if err != nil {
		tb.Fatalf("wiretest: %v", err)
	}
	tb.Cleanup(func() {
		for _, err := range p.close() {
			tb.Errorf("wiretest: %v", err)
		}
	})
	return p
}

func start(ctx context.Context, uri string) (*Proxy, error) {
	o := options.Client().ApplyURI(uri).SetTimeout(patience)
	if err := o.Validate(); err != nil {
		return nil, err
	}
	p := &Proxy{secure: o.TLSConfig, closing: make(chan struct{}), links: make(map[*link]struct{}), counts: make(map[countKey]Count)}
	var err error
	if p.server, err = primary(ctx, o); err != nil {
		return nil, err
	}
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	p.uri = throughProxy(uri, p.listener.Addr().String(), o)
	p.wg.Go(p.accept)
	return p, nil
}

// primary asks the server, or the set of servers, who takes writes.
func primary(ctx context.Context, o *options.ClientOptions) (string, error) {
	client, err := mongo.Connect(o)
	if err != nil {
		return "", err
	}
	defer client.Disconnect(context.WithoutCancel(ctx)) //nolint:errcheck // it was only read from
	var hello struct{ Me string }
	if err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		return "", fmt.Errorf("the server does not answer: %w", err)
	}
	if hello.Me != "" {
		return hello.Me, nil
	}
	if _, _, err := net.SplitHostPort(o.Hosts[0]); err != nil {
		return net.JoinHostPort(o.Hosts[0], "27017"), nil
	}
	return o.Hosts[0], nil
}

// throughProxy is the URI with the proxy's address. The driver then must not look for other members of the set, encrypt or compress.
func throughProxy(uri, address string, o *options.ClientOptions) string {
	_, rest, _ := strings.Cut(uri, "://")
	rest, query, _ := strings.Cut(rest, "?")
	authority, database, _ := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		address = authority[:at+1] + address
	}
	kept := []string{"directConnection=true"}
	if o.Auth != nil && o.Auth.AuthSource != "" {
		kept = append(kept, "authSource="+url.QueryEscape(o.Auth.AuthSource))
	}
	for option := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(strings.ToLower(option), "=")
		about := func(words ...string) bool {
			return slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(name, w) })
		}
		if name != "" && !about("tls", "ssl", "replicaset", "directconnection", "loadbalanced", "srv", "compressors", "zlib", "authsource") {
			kept = append(kept, option)
		}
	}
	return "mongodb://" + address + "/" + database + "?" + strings.Join(kept, "&")
}

// URI is the address that a driver is to be given: the server's, through the proxy.
func (p *Proxy) URI() string { return p.uri }

// CutAll cuts every connection there is. Commands that are on their way are carried out; their replies are lost.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.hangUp()
	}
}

// Down makes the server unreachable: cuts every connection, and closes new ones at once, until Up.
func (p *Proxy) Down() {
	p.mu.Lock()
	p.down = true
	p.mu.Unlock()
	p.CutAll()
}

// Up ends what Down began.
func (p *Proxy) Up() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = false
}

// close ends every connection, waits until nothing of the proxy runs, and returns what went wrong that no rule asked for.
func (p *Proxy) close() []error {
	close(p.closing)
	p.listener.Close() //nolint:errcheck // accept ends all the same
	p.mu.Lock()
	for l := range p.links {
		l.close()
	}
	p.mu.Unlock()
	p.wg.Wait()
	return p.faults
}

// fault notes what went wrong that no rule asked for: a test fails on it. Only the first few are kept.
func (p *Proxy) fault(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.faults) < 10 {
		p.faults = append(p.faults, err)
	}
}

func (p *Proxy) accept() {
	for {
		driver, err := p.listener.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				p.fault(err)
			}
			return
		}
		if l := p.admit(driver); l != nil {
			p.wg.Go(l.run)
		} else {
			driver.Close()
		}
	}
}

// admit makes the link of a new connection, unless there is to be none.
func (p *Proxy) admit(driver net.Conn) *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.closing:
		return nil
	default:
	}
	if p.down || len(p.links) >= maxConnections {
		return nil
	}
	p.accepted++
	l := &link{p: p, number: p.accepted, driver: driver, requests: make(chan message), gone: make(chan struct{}), over: make(chan struct{})}
	p.links[l] = struct{}{}
	return l
}

// learn notes the state in which a server says, in a reply to hello, that it is.
func (p *Proxy) learn(hello message) {
	body, _, err := hello.document()
	if err != nil {
		return // the driver will say what it thinks of it
	}
	if state, err := body.LookupErr("topologyVersion"); err == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.state = state
	}
}

func (p *Proxy) topology() bson.RawValue {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

func (p *Proxy) nextID() int32 { return p.replies.Add(1) }

func (p *Proxy) forget(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// dial connects to the server.
func (p *Proxy) dial() (net.Conn, error) {
	d := net.Dialer{Timeout: patience}
	if p.secure == nil {
		return d.Dial("tcp", p.server)
	}
	return tls.DialWithDialer(&d, "tcp", p.server, p.secure)
}
