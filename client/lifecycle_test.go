package client

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-im/parley/protocol"
)

func TestTLS(t *testing.T) {
	cert, pool := selfSigned(t)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f := newFake(t)
	f.wg.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			f.take(nc)
		}
	})
	over := func(cfg *tls.Config) func(*Options) {
		return func(o *Options) {
			o.Plaintext, o.DialContext, o.Addr, o.TLS = false, nil, l.Addr().String(), cfg
		}
	}
	c, _ := connect(t, f, over(&tls.Config{RootCAs: pool}))
	ready(t, c)
	if ack, err := c.Send(t.Context(), Text(User("bob"), "over TLS")); err != nil || ack.Seq != 1 {
		t.Errorf("ack %+v, %v", ack, err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}

	// A certificate that nobody vouches for is not taken, and no HELLO goes out.
	hellos := len(f.sent(protocol.CmdHello))
	failed := make(chan error, 1)
	c, _ = connect(t, f, over(nil), func(o *Options) {
		o.OnConnState = func(s ConnState, err error) {
			if s == StateWaiting {
				select {
				case failed <- err:
				default:
				}
			}
		}
	})
	var unknown x509.UnknownAuthorityError
	if err := <-failed; !errors.As(err, &unknown) {
		t.Errorf("error %v", err)
	}
	c.Close()
	if n := len(f.sent(protocol.CmdHello)); n != hellos {
		t.Error("the token went to a server that nobody vouches for")
	}
	l.Close()
	f.close()
}

func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "parley"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func TestLifecycle(t *testing.T) {
	good := Options{Addr: "x:1", DeviceID: "d", Token: func(context.Context) (string, error) { return "", nil }}
	for _, bad := range []func(*Options){
		func(o *Options) { o.Addr = "" }, func(o *Options) { o.Token = nil }, func(o *Options) { o.DeviceID = "" },
		func(o *Options) { o.PageSize = 201 }, func(o *Options) { o.Pipeline = -1 }, func(o *Options) { o.MaxBackoff = -1 },
	} {
		o := good
		bad(&o)
		if _, err := New(o); err == nil {
			t.Errorf("New took %+v", o)
		}
	}
	c, err := New(good)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.Close(); err != nil { // it never ran
			t.Error(err)
		}
	}
	if err := c.Run(t.Context()); err == nil {
		t.Error("Run after Close")
	}
	for _, err := range []error{c.Ready(t.Context()), c.Online(t.Context()), c.SignOut(t.Context(), "")} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
	if _, err := c.Send(t.Context(), Text(User("bob"), "x")); !errors.Is(err, ErrClosed) {
		t.Errorf("Send after Close: %v", err)
	}
}

func TestRunEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		defer f.close()
		r := &recorder{}
		o := Options{
			Addr: "fake:1", Plaintext: true, DialContext: f.dial, DeviceID: device,
			Token: func(context.Context) (string, error) { return "token", nil },
		}
		r.options(&o)
		c, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			ready(t, c)
			cancel()
		}()
		if err := c.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
	})
}
