package conn

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/parley-im/parley/protocol"
)

func publicPEM(t *testing.T, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func sign(t *testing.T, m jwt.SigningMethod, key any, c jwt.MapClaims) string {
	t.Helper()
	s, err := jwt.NewWithClaims(m, c).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestVerify(t *testing.T) {
	edPublic, edPrivate, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, otherPrivate, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_700_000_000, 0)
	claims := func(kv ...any) jwt.MapClaims {
		c := jwt.MapClaims{"sub": "ann", "exp": now.Unix() + 60}
		for i := 0; i < len(kv); i += 2 {
			if c[kv[i].(string)] = kv[i+1]; kv[i+1] == nil {
				delete(c, kv[i].(string))
			}
		}
		return c
	}
	hs := func(kv ...any) string { return sign(t, jwt.SigningMethodHS256, testSecret, claims(kv...)) }
	ed := func(kv ...any) string { return sign(t, jwt.SigningMethodEdDSA, edPrivate, claims(kv...)) }
	none := sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, claims())
	parts := strings.Split(hs(), ".")
	noneHeader := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`))

	both := VerifierOptions{Secret: testSecret, PublicKey: edPublic}
	onlyHS := VerifierOptions{Secret: testSecret}
	onlyEd := VerifierOptions{PublicKey: edPublic}
	withAud := VerifierOptions{Secret: testSecret, Audience: "parley"}
	const good = protocol.ErrorCode(0)
	for _, c := range []struct {
		name  string
		o     VerifierOptions
		token string
		want  protocol.ErrorCode
	}{
		{"HS256", onlyHS, hs(), good},
		{"EdDSA", onlyEd, ed(), good},
		{"HS256, both keys", both, hs(), good},
		{"EdDSA, both keys", both, ed(), good},
		{"did of this device", onlyHS, hs("did", "d1"), good},
		{"aud not asked for", onlyHS, hs("aud", "other"), good},
		{"aud", withAud, hs("aud", "parley"), good},
		{"aud among others", withAud, hs("aud", []string{"x", "parley"}), good},
		{"far future", onlyHS, hs("exp", 1e15), good},

		{"expired", onlyHS, hs("exp", now.Unix()-1), protocol.CodeTokenExpired},
		{"expired, EdDSA", both, ed("exp", now.Unix()-1), protocol.CodeTokenExpired},
		{"expires now", onlyHS, hs("exp", now.Unix()), protocol.CodeTokenExpired},

		{"none", both, none, protocol.CodeUnauthenticated},
		{"none with a signature", both, noneHeader + "." + parts[1] + "." + parts[2], protocol.CodeUnauthenticated},
		{"EdDSA without its key", onlyHS, ed(), protocol.CodeUnauthenticated},
		{"HS256 without its key", onlyEd, hs(), protocol.CodeUnauthenticated},
		{"public key as secret", onlyEd, sign(t, jwt.SigningMethodHS256, []byte(edPublic), claims()), protocol.CodeUnauthenticated},
		{"public key as secret, both keys", both, sign(t, jwt.SigningMethodHS256, []byte(edPublic), claims()), protocol.CodeUnauthenticated},
		{"public PEM as secret", both, sign(t, jwt.SigningMethodHS256, publicPEM(t, edPublic), claims()), protocol.CodeUnauthenticated},
		{"HS512", onlyHS, sign(t, jwt.SigningMethodHS512, testSecret, claims()), protocol.CodeUnauthenticated},
		{"ES256", both, sign(t, jwt.SigningMethodES256, ecKey, claims()), protocol.CodeUnauthenticated},
		{"RS256", both, sign(t, jwt.SigningMethodRS256, rsaKey, claims()), protocol.CodeUnauthenticated},
		{"other secret", onlyHS, sign(t, jwt.SigningMethodHS256, bytes.Repeat([]byte("x"), 32), claims()), protocol.CodeUnauthenticated},
		{"other private key", onlyEd, sign(t, jwt.SigningMethodEdDSA, otherPrivate, claims()), protocol.CodeUnauthenticated},
		{"no exp", onlyHS, hs("exp", nil), protocol.CodeUnauthenticated},
		{"exp is text", onlyHS, hs("exp", "tomorrow"), protocol.CodeUnauthenticated},
		{"not yet", onlyHS, hs("nbf", now.Unix()+10), protocol.CodeUnauthenticated},
		{"no sub", onlyHS, hs("sub", nil), protocol.CodeUnauthenticated},
		{"sub with a colon", onlyHS, hs("sub", "a:b"), protocol.CodeUnauthenticated},
		{"long sub", onlyHS, hs("sub", strings.Repeat("a", 65)), protocol.CodeUnauthenticated},
		{"did of another device", onlyHS, hs("did", "d2"), protocol.CodeUnauthenticated},
		{"empty did", onlyHS, hs("did", ""), protocol.CodeUnauthenticated},
		{"no aud", withAud, hs(), protocol.CodeUnauthenticated},
		{"other aud", withAud, hs("aud", "other"), protocol.CodeUnauthenticated},
		{"expired and forged", onlyHS, sign(t, jwt.SigningMethodHS256, bytes.Repeat([]byte("x"), 32), claims("exp", 1)), protocol.CodeUnauthenticated},
		{"expired and other aud", withAud, hs("aud", "other", "exp", 1), protocol.CodeUnauthenticated},
		{"expired and another device's", onlyHS, hs("did", "d2", "exp", 1), protocol.CodeUnauthenticated},
		{"empty", both, "", protocol.CodeUnauthenticated},
		{"dots", both, "..", protocol.CodeUnauthenticated},
		{"cut", both, hs()[:40], protocol.CodeUnauthenticated},
		{"a byte changed", both, parts[0] + "." + parts[1] + "A." + parts[2], protocol.CodeUnauthenticated},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Now = func() time.Time { return now }
			v, err := NewVerifier(c.o)
			if err != nil {
				t.Fatal(err)
			}
			user, expires, err := v.Verify(c.token, "d1")
			if c.want == good {
				if err != nil || user != "ann" || !expires.After(now) {
					t.Errorf("got %q, %v, %v", user, expires, err)
				}
				return
			}
			if user != "" || !errors.Is(err, &protocol.Error{Code: c.want}) {
				t.Errorf("got %q, %v", user, err)
			}
		})
	}
}

func TestMint(t *testing.T) {
	v, err := NewVerifier(VerifierOptions{Secret: testSecret, Audience: "aud"})
	if err != nil {
		t.Fatal(err)
	}
	tok, err := Mint(testSecret, "ann", "d1", "aud", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if user, expires, err := v.Verify(tok, "d1"); err != nil || user != "ann" || time.Until(expires) > time.Minute || time.Until(expires) < 50*time.Second {
		t.Errorf("got %q, %v, %v", user, expires, err)
	}
	if _, _, err := v.Verify(tok, "d2"); err == nil {
		t.Error("good for another device")
	}
	for _, c := range []struct {
		secret []byte
		user   string
	}{{testSecret[:31], "ann"}, {testSecret, "a:b"}, {testSecret, ""}} {
		if _, err := Mint(c.secret, c.user, "", "", time.Minute); err == nil {
			t.Errorf("minted for %q with %d bytes", c.user, len(c.secret))
		}
	}
}

func TestKeys(t *testing.T) {
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ParsePublicKey(publicPEM(t, public)); err != nil || !got.Equal(public) {
		t.Errorf("got %v, %v", got, err)
	}
	for name, text := range map[string][]byte{
		"another kind": publicPEM(t, &ecKey.PublicKey), "nothing": nil, "text": []byte("hello"),
		"garbage": pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("x")}),
		"private": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")}),
	} {
		if _, err := ParsePublicKey(text); err == nil {
			t.Errorf("%s is taken for a key", name)
		}
	}
	for _, o := range []VerifierOptions{{}, {Secret: testSecret[:31]}, {PublicKey: public[:31]}} {
		if _, err := NewVerifier(o); err == nil {
			t.Errorf("made of %d and %d bytes", len(o.Secret), len(o.PublicKey))
		}
	}
}
