package main

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/parley-im/parley/protocol"
)

const (
	defaultData = "./data"
	defaultPort = "7000"
)

// serveSettings are the flags of serve. Each acts; docs/operations.md lists them all.
type serveSettings struct {
	data   string
	mongo  string
	listen string
	http   string
	pprof  bool

	heartbeat   time.Duration
	handshake   time.Duration
	maxBody     size
	maxDown     size
	maxInflight int
	maxConns    int
	maxDevices  int
	softOut     size
	hardOut     size
	stall       time.Duration
	loops       int

	retention    age
	revokeWithin time.Duration
	editWithin   time.Duration

	cache   size
	state   size
	queue   size
	reserve size

	jwtPublicKey string
	audience     string

	drainDelay   time.Duration
	drainWindow  time.Duration
	drainTimeout time.Duration

	logLevel  string
	logFormat string
}

func (s *serveSettings) register(cmd *cobra.Command) {
	f := cmd.Flags()
	addConfigFlag(cmd)
	f.StringVar(&s.data, "data", defaultData, "folder of everything that is kept; made on the first start, with the secret that signs tokens")
	f.StringVar(&s.mongo, "mongo", "", "URI of a MongoDB database (default name parley) that keeps everything but the secret, instead of the folder; PARLEY_MONGO keeps its password off the command line")
	f.StringVar(&s.listen, "listen", ":"+defaultPort, "address for the apps' connections")
	f.StringVar(&s.http, "http", "127.0.0.1:7080", "address for /healthz, /readyz and /metrics; '' for none. Keep it off public networks")
	f.BoolVar(&s.pprof, "pprof", false, "serve Go's profiles under /debug/pprof/ of the HTTP address")

	f.DurationVar(&s.heartbeat, "heartbeat", 60*time.Second, "how long a client may stay silent before it pings; three times as long ends its connection")
	f.DurationVar(&s.handshake, "handshake-timeout", 10*time.Second, "how long a new connection may take to sign in")
	s.maxBody = size(protocol.DefaultMaxBody)
	f.Var(&s.maxBody, "max-body", "largest body of a request")
	s.maxDown = size(protocol.DefaultMaxDown)
	f.Var(&s.maxDown, "max-down", "largest body that is sent to a client; at least --max-body and 1KiB")
	f.IntVar(&s.maxInflight, "max-inflight", 32, "requests that a connection may have open at once")
	f.IntVar(&s.maxConns, "max-conns", 0, "connections at once; 0: what the limit of file descriptors allows")
	f.IntVar(&s.maxDevices, "max-devices", 16, "devices that a user may have online at once")
	s.softOut = mib
	f.Var(&s.softOut, "outbound-soft", "unsent bytes of a connection above which pushes are skipped, and the client is told to catch up")
	s.hardOut = 4 * mib
	f.Var(&s.hardOut, "outbound-hard", "unsent bytes of a connection at which it is closed as too slow")
	f.DurationVar(&s.stall, "stall-timeout", 60*time.Second, "a connection that takes not one of its unsent bytes for so long is closed as too slow")
	f.IntVar(&s.loops, "loops", 0, "event loops for connections; 0: one for two CPUs")

	f.Var(&s.retention, "retention", "purge messages that are older, as in 365d, for everyone and for ever; 0 keeps them")
	f.DurationVar(&s.revokeWithin, "revoke-within", day, "how long senders may take a message back")
	f.DurationVar(&s.editWithin, "edit-within", day, "how long senders may change a message")

	s.cache = 256 * mib
	f.Var(&s.cache, "cache", "memory for the store's cache; with --mongo, for contents of messages that were read")
	s.state = 512 * mib
	f.Var(&s.state, "state-memory", "memory for the newest ids of the conversations in use: up to 192KiB for a busy one, in which repeats are found")
	s.queue = 64 * mib
	f.Var(&s.queue, "queue", "memory for messages that wait to be stored; sends are refused above it")
	s.reserve = 256 * mib
	f.Var(&s.reserve, "reserve", "free space on the data folder's disk below which sends are refused (reads go on)")

	f.StringVar(&s.jwtPublicKey, "jwt-public-key", "", "file of an Ed25519 public key (PEM): also accept tokens that its private key signed (EdDSA)")
	f.StringVar(&s.audience, "audience", "", "refuse tokens whose aud claim does not have this")

	f.DurationVar(&s.drainDelay, "drain-delay", 0, "how long /readyz is red before clients are asked to go: the time that a balancer needs to notice")
	f.DurationVar(&s.drainWindow, "drain-window", 5*time.Second, "clients that are asked to go dial again within it, each at a random moment")
	f.DurationVar(&s.drainTimeout, "drain-timeout", 20*time.Second, "how long clients may take to go before their connections are closed")

	f.StringVar(&s.logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&s.logFormat, "log-format", "text", "text or json")
}

func addConfigFlag(cmd *cobra.Command) {
	cmd.Flags().String("config", "", "YAML file with the settings of serve, by the names of its flags")
}

// check refuses what cannot be meant, in words of the flags; the packages check the rest of what they are given.
func (s *serveSettings) check() error {
	switch {
	case s.heartbeat < time.Second || s.heartbeat > 3600*time.Second:
		return fmt.Errorf("--heartbeat is %s; give 1s to 1h", s.heartbeat)
	case s.handshake < time.Second:
		return fmt.Errorf("--handshake-timeout is %s; give at least 1s", s.handshake)
	case s.maxBody < kib || s.maxBody > 15*mib:
		return fmt.Errorf("--max-body is %s; give 1KiB to 15MiB", &s.maxBody)
	case s.maxDown < s.maxBody+kib || s.maxDown > 16*mib:
		return fmt.Errorf("--max-down is %s; give --max-body (%s) and at least 1KiB more, at most 16MiB", &s.maxDown, &s.maxBody)
	case s.maxInflight < 1 || s.maxInflight > 1<<16-1:
		return fmt.Errorf("--max-inflight is %d; give 1 to 65535", s.maxInflight)
	case s.maxDevices < 1:
		return fmt.Errorf("--max-devices is %d; give at least 1", s.maxDevices)
	case s.maxConns < 0:
		return fmt.Errorf("--max-conns is %d; give 0 or more", s.maxConns)
	case s.loops < 0:
		return fmt.Errorf("--loops is %d; give 0 or more", s.loops)
	case s.softOut >= s.hardOut:
		return fmt.Errorf("--outbound-soft is %s; give less than --outbound-hard (%s)", &s.softOut, &s.hardOut)
	case s.hardOut <= s.maxDown:
		return fmt.Errorf("--outbound-hard is %s; give more than --max-down (%s), or one answer could close a connection", &s.hardOut, &s.maxDown)
	case s.retention > 0 && s.retention < age(time.Hour):
		return fmt.Errorf("--retention is %s; give at least 1h, or 0 to keep messages for ever", &s.retention)
	case s.revokeWithin < time.Second:
		return fmt.Errorf("--revoke-within is %s; give at least 1s", s.revokeWithin)
	case s.editWithin < time.Second:
		return fmt.Errorf("--edit-within is %s; give at least 1s", s.editWithin)
	case s.state < mib:
		return fmt.Errorf("--state-memory is %s; give at least 1MiB", &s.state)
	case s.queue < mib:
		return fmt.Errorf("--queue is %s; give at least 1MiB", &s.queue)
	case s.cache < mib:
		return fmt.Errorf("--cache is %s; give at least 1MiB", &s.cache)
	case s.reserve < mib:
		return fmt.Errorf("--reserve is %s; give at least 1MiB: a store that finds no space at all cannot clean up", &s.reserve)
	case s.stall < time.Second:
		return fmt.Errorf("--stall-timeout is %s; give at least 1s", s.stall)
	case s.drainDelay < 0:
		return fmt.Errorf("--drain-delay is %s; give 0s or more", s.drainDelay)
	case s.drainWindow < 10*time.Millisecond:
		return fmt.Errorf("--drain-window is %s; give at least 10ms", s.drainWindow)
	case s.drainTimeout < s.drainWindow:
		return fmt.Errorf("--drain-timeout is %s; give at least --drain-window (%s), or clients are cut off before they go", s.drainTimeout, s.drainWindow)
	}
	return nil
}

// logger writes to w in the format and from the level that the flags say.
func (s *serveSettings) logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level is %q; give debug, info, warn or error", s.logLevel)
	}
	options := &slog.HandlerOptions{Level: level}
	switch s.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	default:
		return nil, fmt.Errorf("--log-format is %q; give text or json", s.logFormat)
	}
}
