package main

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/parley-im/parley/protocol"
)

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// A fresh folder and nothing else: the server answers within seconds, and the files are for its user alone.
func TestServeFresh(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	began := time.Now()
	srv := startServing(t, dir, "127.0.0.1:0")
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it was ready after %v", took)
	}
	for path, want := range map[string]string{"/healthz": "ok", "/readyz": "ok", "/metrics": "parley_build_info{version=\"test\"} 1"} {
		if code, body := get(t, srv.http+path); code != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %.80q", path, code, body)
		}
	}
	for path, want := range map[string]os.FileMode{dir: 0o700 | os.ModeDir, filepath.Join(dir, secretName): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want mode %v", path, info.Mode(), err, want)
		}
	}
	mustDial(t, srv.addr, tokens(t, dir, "alice")[0], "phone").Close()
	if code := srv.stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// On SIGTERM /readyz is red before anybody is asked to go; the server ends with 0 when they are gone, and cuts off who stays.
func TestServeDrains(t *testing.T) {
	dir := t.TempDir()
	srv := startServing(t, dir, "127.0.0.1:0", "--drain-delay", "2s", "--drain-window", "50ms", "--drain-timeout", "1s")
	keys := tokens(t, dir, "alice", "bob")
	polite, rude := mustDial(t, srv.addr, keys[0], "phone"), mustDial(t, srv.addr, keys[1], "phone")
	asked := make(chan time.Time, 1)
	go func() {
		for {
			f, err := polite.next()
			if err != nil {
				return
			}
			if f.Command == protocol.CmdGoAway {
				asked <- time.Now()
				polite.Close()
				return
			}
		}
	}()
	if err := srv.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for code := 200; code != 503; {
		var body string
		code, body = get(t, srv.http+"/readyz")
		if code == 503 && !strings.Contains(body, "draining") {
			t.Errorf("/readyz says %q", body)
		}
	}
	red := time.Now()
	if code, _ := get(t, srv.http+"/healthz"); code != 200 {
		t.Errorf("/healthz is %d while it drains", code)
	}
	select {
	case at := <-asked:
		if at.Before(red) {
			t.Error("GOAWAY came before /readyz was red")
		}
	case <-time.After(patience):
		t.Fatal("no GOAWAY")
	}
	if code := srv.exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for {
		if _, err := rude.next(); err != nil {
			break // it was cut off
		}
	}
}

func TestServeSecondSignal(t *testing.T) {
	srv := startServing(t, t.TempDir(), "127.0.0.1:0", "--drain-delay", "1h")
	for _, line := range []string{"msg=draining", "msg=\"ending at once\""} {
		if err := srv.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		srv.waitFor(t, regexp.MustCompile(line))
	}
	if code := srv.exit(t); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
}

// refused runs serve, which must end by itself with 1 and one line that has all of these.
func refused(t *testing.T, args []string, want ...string) {
	t.Helper()
	p := startProcess(t, append([]string{"serve"}, args...)...)
	if code := p.exit(t); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	text := p.output.text()
	for _, s := range want {
		if !strings.Contains(text, s) {
			t.Errorf("%q does not say %q", text, s)
		}
	}
	if !strings.HasPrefix(text, "parley: ") || strings.Count(text, "\n") != 1 {
		t.Errorf("not one line: %q", text)
	}
}

func TestServeRefused(t *testing.T) {
	dir := t.TempDir()
	srv := startServing(t, dir, "127.0.0.1:0")
	t.Run("the folder is in use", func(t *testing.T) {
		refused(t, []string{"--data", dir, "--listen", "127.0.0.1:0", "--http", ""}, dir, "in use")
	})
	t.Run("the port is in use", func(t *testing.T) {
		refused(t, []string{"--data", t.TempDir(), "--listen", srv.addr, "--http", ""}, srv.addr, "address already in use")
	})
	t.Run("the HTTP port is in use", func(t *testing.T) {
		addr := strings.TrimPrefix(srv.http, "http://")
		refused(t, []string{"--data", t.TempDir(), "--listen", "127.0.0.1:0", "--http", addr}, addr, "address already in use", "--http")
	})
	t.Run("the secret is open", func(t *testing.T) {
		open := t.TempDir()
		tokens(t, open, "alice")
		if err := os.Chmod(filepath.Join(open, secretName), 0o644); err != nil {
			t.Fatal(err)
		}
		refused(t, []string{"--data", open, "--listen", "127.0.0.1:0", "--http", ""}, "chmod 600 "+filepath.Join(open, secretName))
	})
	t.Run("not a key", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "key.pem")
		if err := os.WriteFile(path, []byte("no PEM"), 0o600); err != nil {
			t.Fatal(err)
		}
		refused(t, []string{"--data", t.TempDir(), "--listen", "127.0.0.1:0", "--http", "", "--jwt-public-key", path}, "--jwt-public-key", path)
	})
	t.Run("the folder cannot be made", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		refused(t, []string{"--data", path, "--listen", "127.0.0.1:0", "--http", ""}, path)
	})
	if code, _ := get(t, srv.http+"/readyz"); code != 200 {
		t.Errorf("the first server's /readyz is %d", code)
	}
}

// With less space than the reserve the server starts, says why it takes no sends, and answers reads.
func TestServeDiskFull(t *testing.T) {
	dir := t.TempDir()
	key := tokens(t, dir, "alice")[0]
	srv := startServing(t, dir, "127.0.0.1:0")
	send := &protocol.Send{ClientMsgID: "1", Kind: protocol.KindDirect, Target: "bob", ContentType: protocol.ContentText, Content: []byte("hello")}
	w := mustDial(t, srv.addr, key, "phone")
	if err := w.ask(protocol.CmdSend, send, &protocol.SendAck{}); err != nil {
		t.Fatal(err)
	}
	w.Close()
	srv.stop(t)

	srv = startServing(t, dir, "127.0.0.1:0", "--reserve", "1000000000GiB")
	if code, body := get(t, srv.http+"/readyz"); code != 503 || !strings.Contains(body, "space") {
		t.Errorf("/readyz is %d %q", code, body)
	}
	w = mustDial(t, srv.addr, key, "phone")
	send.ClientMsgID = "2"
	if err := w.ask(protocol.CmdSend, send, &protocol.SendAck{}); !errors.Is(err, &protocol.Error{Code: protocol.CodeUnavailable}) {
		t.Errorf("a send is answered %v", err)
	}
	if all, err := pullAll(w, protocol.DirectConversation("alice", "bob")); err != nil || len(all) != 1 {
		t.Errorf("%d messages, %v, want 1", len(all), err)
	}
}

func TestServeAnswersTokens(t *testing.T) {
	dir := t.TempDir()
	srv := startServing(t, dir, "127.0.0.1:0", "--audience", "chat")
	tests := []struct {
		name string
		args []string
		ok   bool
	}{
		{"for the audience", []string{"--audience", "chat"}, true},
		{"for none", nil, false},
		{"for another", []string{"--audience", "mail"}, false},
		{"for this device", []string{"--audience", "chat", "--device", "phone"}, true},
		{"for another device", []string{"--audience", "chat", "--device", "tablet"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			key := strings.TrimSpace(output(t, append(append([]string{"token", "--data", dir}, tt.args...), "alice")...))
			w, err := dialWire(srv.addr, key, "phone")
			if tt.ok != (err == nil) {
				t.Errorf("signing in: %v", err)
			}
			if err == nil {
				w.Close()
			} else if !errors.Is(err, &protocol.Error{Code: protocol.CodeUnauthenticated}) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// Tokens that somebody else signed, with a key that the server does not have.
func TestServeTakesForeignTokens(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	foreign, err := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{"sub": "alice", "exp": time.Now().Add(time.Hour).Unix()}).SignedString(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	srv := startServing(t, dir, "127.0.0.1:0", "--jwt-public-key", path)
	mustDial(t, srv.addr, foreign, "phone").Close()
	mustDial(t, srv.addr, tokens(t, dir, "alice")[0], "phone").Close()
	if code := srv.stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}

	srv = startServing(t, dir, "127.0.0.1:0")
	if _, err := dialWire(srv.addr, foreign, "phone"); !errors.Is(err, &protocol.Error{Code: protocol.CodeUnauthenticated}) {
		t.Errorf("without the key it is answered %v", err)
	}
}
