package bench

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/parley-im/parley/protocol"
)

// SecretFile is where a server keeps the secret that signs tokens.
func SecretFile(dataDir string) string { return filepath.Join(dataDir, "secret") }

// Tokens gives each connection its token. Safe from any goroutine.
type Tokens struct {
	of    func(id uint32) (string, error)
	count int  // how many there are; 0: as many as are wanted
	fresh bool // nobody has used these users before
}

const tokenLife = 24 * time.Hour

// MintTokens reads a server's secret (hex) and signs tokens with it for users that are new in this run: bench-RUN-0, -1 and so on.
func MintTokens(secretFile string) (*Tokens, error) {
	text, err := os.ReadFile(secretFile)
	if err != nil {
		return nil, fmt.Errorf("the server's secret: %w", err)
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) == 0 {
		return nil, fmt.Errorf("the server's secret: %s does not hold a key in hex", secretFile)
	}
	run := strings.ToLower(rand.Text()[:8])
	return &Tokens{fresh: true, of: func(id uint32) (string, error) {
		return mint(key, "bench-"+run+"-"+strconv.FormatUint(uint64(id), 10), time.Now())
	}}, nil
}

func mint(key []byte, user string, now time.Time) (string, error) {
	return jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.RegisteredClaims{
		Subject: user, IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(tokenLife)),
	}).SignedString(key)
}

// ReadTokens takes tokens that somebody else has made, one a line, each of another user.
func ReadTokens(r io.Reader) (*Tokens, error) {
	var list []string
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, protocol.HandshakeMaxBody)
	for lines.Scan() {
		if t := strings.TrimSpace(lines.Text()); t != "" {
			list = append(list, t)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("tokens: %w", err)
	}
	if len(list) == 0 {
		return nil, errors.New("tokens: there are none")
	}
	return &Tokens{count: len(list), of: func(id uint32) (string, error) { return list[id], nil }}, nil
}

// enough is an error when there are not as many tokens as connections.
func (t *Tokens) enough(conns int) error {
	if t.count > 0 && t.count < conns {
		return fmt.Errorf("%d tokens are not enough for %d connections", t.count, conns)
	}
	if _, err := t.of(0); err != nil {
		return fmt.Errorf("tokens: %w", err)
	}
	return nil
}

// hello is the first frame of connection id. A token that cannot be signed makes one that the server refuses, which is then counted.
func (t *Tokens) hello(id uint32) []byte {
	token, err := t.of(id)
	if err != nil {
		token = ""
	}
	return protocol.AppendFrame(nil, protocol.CmdHello, 1, &protocol.Hello{
		Token: token, DeviceID: "bench", Platform: protocol.PlatformOther, SDK: "parley-bench", Flags: protocol.HelloSignedIn,
	})
}
