package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/parley-im/parley/conn"
	"github.com/parley-im/parley/protocol"
)

type chatSettings struct {
	as, to    string
	addr      string
	data      string
	tokenFile string
	audience  string
	platform  string
	tls       bool
	plaintext bool
	history   int
}

func newChat() *cobra.Command {
	var s chatSettings
	cmd := &cobra.Command{
		Use:   "chat --as USER --to USER",
		Short: "Chat with a user, from a terminal or through pipes",
		Long: `chat is a device of a user: it shows the newest messages with another user and what comes from then on, on whatever device it was written,
and sends the lines that are typed. What is not acknowledged yet is sent again after a lost connection, once. Ctrl-D ends it.

On a terminal each message has a number, and a line that begins with a slash is a command: /revoke 7, /edit 7 new text, /react 7 👍, /unreact 7 👍,
/delete 7, /clear, /help.

Without a terminal it reads lines and prints messages, a line each, and ends with its input, when everything was acknowledged and shown. What
it has to say itself goes to the standard error.

Its token comes from --token-file, else from PARLEY_TOKEN, else it signs one for itself with the secret in the data folder.`,
		Example: `  parley chat --as alice --to bob
  echo "the build is green" | parley chat --as ci --to alice --history 0
  PARLEY_TOKEN=... parley chat --as alice --to bob --addr chat.example.org:7000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return chat(cmd.Context(), &s)
		},
	}
	s.register(cmd)
	return cmd
}

func (s *chatSettings) register(cmd *cobra.Command) {
	f := cmd.Flags()
	addConfigFlag(cmd)
	f.StringVar(&s.as, "as", "", "the user that this device is of (required)")
	f.StringVar(&s.to, "to", "", "the user to chat with; oneself, for notes (required)")
	f.StringVar(&s.addr, "addr", "127.0.0.1:"+defaultPort, "the server")
	f.StringVar(&s.data, "data", defaultData, "the server's data folder, when this machine has it: tokens are signed with its secret")
	f.StringVar(&s.tokenFile, "token-file", "", "file with the user's token; it is read again when the token has expired")
	f.StringVar(&s.audience, "audience", "", "the aud claim of tokens that are signed here")
	f.StringVar(&s.platform, "platform", "other", "what the device is: "+strings.Join(platforms(), ", "))
	f.BoolVar(&s.tls, "tls", false, "connect by TLS, to this machine too")
	f.BoolVar(&s.plaintext, "plaintext", false, "connect by clear TCP, to other machines too")
	f.IntVar(&s.history, "history", 20, "how many of the newest messages are shown at first")
	for _, name := range []string{"as", "to"} {
		_ = cmd.MarkFlagRequired(name) // fails only for a flag that is not there
	}
	cmd.MarkFlagsMutuallyExclusive("tls", "plaintext")
}

// platforms are the names of the protocol's platforms, in its order from 1 on.
func platforms() []string {
	return []string{"ios", "android", "windows", "macos", "linux", "web", "tablet", "other"}
}

func (s *chatSettings) check() error {
	for _, user := range []string{s.as, s.to} {
		if err := checkUser(user); err != nil {
			return err
		}
	}
	if _, _, err := net.SplitHostPort(s.addr); err != nil {
		return fmt.Errorf("--addr is %q; give host:port", s.addr)
	}
	if s.platformNumber() == 0 {
		return fmt.Errorf("--platform is %q; give one of %s", s.platform, strings.Join(platforms(), ", "))
	}
	if s.history < 0 {
		return fmt.Errorf("--history is %d; give 0 or more", s.history)
	}
	return nil
}

// platformNumber is 0 when there is none of that name.
func (s *chatSettings) platformNumber() protocol.Platform {
	for i, name := range platforms() {
		if name == s.platform {
			return protocol.Platform(i + 1)
		}
	}
	return 0
}

// clear tells whether to connect by clear TCP: when told so, or on this machine when not told otherwise.
func (s *chatSettings) clear() bool {
	if s.tls || s.plaintext {
		return s.plaintext
	}
	host, _, _ := net.SplitHostPort(s.addr)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// token makes the client's source of tokens.
func (s *chatSettings) token() (func(context.Context) (string, error), error) {
	if s.tokenFile != "" {
		return func(context.Context) (string, error) { return readToken(s.tokenFile) }, nil
	}
	if token := os.Getenv(envToken); token != "" {
		return func(context.Context) (string, error) { return token, nil }, nil
	}
	secret, err := readSecret(filepath.Join(s.data, secretName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no secret in %s to sign a token with; start the server once (parley serve), name its folder with --data, or give a token by %s or --token-file",
			s.data, envToken)
	}
	if err != nil {
		return nil, err
	}
	return func(context.Context) (string, error) {
		return conn.Mint(secret, s.as, "", s.audience, time.Hour)
	}, nil
}

func readToken(path string) (string, error) {
	text, err := os.ReadFile(path)
	return strings.TrimSpace(string(text)), err
}

func chat(ctx context.Context, s *chatSettings) error {
	if err := s.check(); err != nil {
		return err
	}
	token, err := s.token()
	if err != nil {
		return err
	}
	if s.tokenFile != "" {
		if _, err := readToken(s.tokenFile); err != nil {
			return fmt.Errorf("--token-file: %w", err)
		}
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	scr, err := openScreen(os.Stdin, os.Stdout, os.Stderr, s.as+"> ")
	if err != nil {
		return err
	}
	defer scr.close()
	t, err := newTalk(s, token, scr)
	if err != nil {
		return err
	}
	return t.run(ctx)
}
