package client

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"math"
	"net"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/parley-im/parley/protocol"
)

// Options say where a Client connects, as whom, and what it calls. Addr, Token and DeviceID are required; the zero value of every
// other field is a default that works.
//
// The handlers OnMessage, OnChange, OnDeleted, OnCleared, OnStale, OnList, OnEvent and OnSignal are called one at a time, never two at
// once, with a context that ends when the client stops. They may call the client's methods (Send too), except Close and Ready, which
// wait for them. A nil handler counts as one that does nothing. When a handler returns an error, the client stops with that error, and what the
// handler was given comes again after the next start.
type Options struct {
	// Addr is the server's host and port.
	Addr string
	// Plaintext connects by clear TCP, for a server on the same host or a tunnel. Otherwise it is TLS.
	Plaintext bool
	// TLS is the configuration for TLS; nil: the system's roots and Addr's host name.
	TLS *tls.Config
	// DialContext opens the connection below TLS; nil: a net.Dialer.
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)

	// Token fetches a token. It is called for the first connection and again when the server refused or expired the last
	// token; in between the client keeps it. An error is retried with backoff. It is called by one goroutine at a time.
	Token func(ctx context.Context) (string, error)
	// DeviceID names this installation of the app: the same after a restart, another one on another device.
	DeviceID string
	// Platform is what the device is; 0: PlatformOther.
	Platform protocol.Platform
	// SDK names the app and its version to the operator; "": this package.
	SDK string
	// SignedIn says that the person has just signed in: the first connection may displace another device of the same class.
	// Later connections of this Client never do.
	SignedIn bool

	// OnMessage takes the messages of all conversations: in each of them in the order of seq, each once. Revoked ones come
	// with StatusRevoked and without content; what is gone or hidden does not come.
	OnMessage func(ctx context.Context, m protocol.Message) error
	// OnChange takes a message that OnMessage took before, or that is older than what this device fetched, when it was revoked, edited
	// or reacted to: by anybody, on this device too. It comes as it is now; one that an operator has removed meanwhile with StatusGone and
	// nothing else. In each conversation changes come in the order of ChangeSeq, and each ChangeSeq once: those that the message from
	// OnMessage had already do not come. (After a restart some may.) Of two copies the app keeps the one with the higher ChangeSeq.
	OnChange func(ctx context.Context, m protocol.Message) error
	// OnDeleted is told which messages the user deleted for themselves, OnCleared up to which seq the user cleared the history: on
	// another device or on this one, also while this one was away. Neither OnMessage nor OnChange gives such a message later. Values are
	// absolute: what comes twice, after a repeated request say, changes nothing.
	OnDeleted func(ctx context.Context, conversationID string, seqs []uint64) error
	OnCleared func(ctx context.Context, conversationID string, upTo uint64) error
	// OnStale says that what the app has stored of a conversation must be fetched again before it is shown; with "" that of
	// all conversations, because the server's history is another one: the app drops its cache.
	OnStale func(ctx context.Context, conversationID string) error
	// OnList takes the list of conversations: all of it at first, later what changed in it.
	OnList func(ctx context.Context, p ListPage) error
	// OnEvent takes events (a read mark, presence …), but not those that other handlers are told of: changes, deletions, clears. They
	// are hints: one may be lost when the handlers are slow; then a SYNC follows by itself.
	OnEvent func(ctx context.Context, e protocol.Event)
	// OnSignal takes signals of other users (typing …). They may be lost.
	OnSignal func(ctx context.Context, s protocol.Signal)

	// OnSent is told how each queued message ended, also those that a former process had queued: with the ack, or with the final
	// error. It is called from several goroutines, in order for one target; until it returns, the next message of the target waits.
	OnSent func(e Entry, ack protocol.SendAck, err error)
	// OnConnState is told of each change of the connection's state, in order. It must return at once and not call Close.
	OnConnState func(s ConnState, err error)

	// State keeps cursors and the sync token; nil: in memory.
	State State
	// Outbox keeps the messages that are not acked yet; nil: in memory.
	Outbox Outbox

	// History is how many of the newest messages of each conversation a device that knows nothing yet fetches. 0: 50;
	// negative: none, only what comes from now on.
	History int
	// Pipeline is how many messages to one target may be in flight. With more than one (0 is one) their order is kept only as long as
	// none is refused or must be repeated.
	Pipeline int
	// PageSize is how many entries one PULL asks for, at most 200. 0: 100.
	PageSize int
	// OutboxLimit and OutboxBytes bound what is queued: messages and bytes of content. 0: 1,000 and 16 MiB.
	OutboxLimit, OutboxBytes int
	// HoldBytes bounds the messages that wait for the app's handlers, 0: 4 MiB. What does not fit is fetched again later.
	HoldBytes int
	// MaxConversations bounds the conversations that are followed. 0: 100,000. Others are ignored, and counted.
	MaxConversations int

	// MinBackoff and MaxBackoff bound the delay before something is tried again; the delay is random between 0 and a bound that
	// doubles from the one to the other. 0: 1 s and 1 min.
	MinBackoff, MaxBackoff time.Duration
	// DialTimeout bounds connecting and signing in; ReplyTimeout waiting for a reply, and for a sign of life. 0: 10 s each.
	DialTimeout, ReplyTimeout time.Duration

	// Logger is told of what goes wrong, never of contents or tokens. nil: nothing is logged.
	Logger *slog.Logger
}

const (
	sdkName      = "parley-go/1"
	maxDownBound = 16 << 20 // the largest max_down that is believed

	defaultHeartbeat = 60 * time.Second
	defaultInflight  = 32
	defaultResend    = 5 * time.Minute
)

func (o *Options) check() error {
	switch {
	case o.Addr == "":
		return errors.New("client: Options.Addr is empty")
	case o.Token == nil:
		return errors.New("client: Options.Token is nil")
	case o.DeviceID == "" || len(o.DeviceID) > protocol.MaxDeviceID:
		return errors.New("client: Options.DeviceID must have 1 to 128 bytes")
	case o.PageSize < 0 || o.PageSize > protocol.MaxSeqs:
		return errors.New("client: Options.PageSize is over 200")
	case o.Pipeline < 0 || o.OutboxLimit < 0 || o.OutboxBytes < 0 || o.HoldBytes < 0 || o.MaxConversations < 0:
		return errors.New("client: a bound in Options is negative")
	case o.MinBackoff < 0 || o.MaxBackoff < 0 || o.DialTimeout < 0 || o.ReplyTimeout < 0:
		return errors.New("client: a duration in Options is negative")
	}
	return nil
}

func (o *Options) fill() {
	fill(&o.Platform, protocol.PlatformOther)
	fill(&o.SDK, sdkName)
	fill(&o.History, 50)
	fill(&o.Pipeline, 1)
	fill(&o.PageSize, 100)
	fill(&o.OutboxLimit, 1000)
	fill(&o.OutboxBytes, 16<<20)
	fill(&o.HoldBytes, 4<<20)
	fill(&o.MaxConversations, 100_000)
	fill(&o.MinBackoff, time.Second)
	fill(&o.MaxBackoff, max(time.Minute, o.MinBackoff))
	fill(&o.DialTimeout, 10*time.Second)
	fill(&o.ReplyTimeout, 10*time.Second)
	if o.History < 0 {
		o.History = 0
	}
	if o.State == nil {
		o.State = NewMemoryState()
	}
	if o.Outbox == nil {
		o.Outbox = NewMemoryOutbox()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.DialContext == nil {
		o.DialContext = (&net.Dialer{}).DialContext
	}
}

// newBackoff makes delays with full jitter: random between 0 and a bound that doubles from MinBackoff to MaxBackoff.
func (o *Options) newBackoff() *backoff.ExponentialBackOff {
	return &backoff.ExponentialBackOff{
		InitialInterval: o.MinBackoff / 2, MaxInterval: o.MaxBackoff / 2, Multiplier: 2, RandomizationFactor: 1,
	}
}

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// tlsConfig is the configuration for a connection to Addr.
func (o *Options) tlsConfig() *tls.Config {
	cfg := o.TLS.Clone()
	if cfg == nil {
		cfg = &tls.Config{}
	}
	if cfg.MinVersion == 0 {
		cfg.MinVersion = tls.VersionTLS12
	}
	if cfg.ServerName == "" {
		if host, _, err := net.SplitHostPort(o.Addr); err == nil {
			cfg.ServerName = host
		}
	}
	return cfg
}

// millis is ms milliseconds, without overflow.
func millis(ms uint32) time.Duration {
	return time.Duration(min(int64(ms), math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}
