package conn

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/parley-im/parley/protocol"
)

// MinSecret is the shortest HS256 secret in bytes: as many as the hash has.
const MinSecret = 32

// VerifierOptions for NewVerifier: at least one of the keys.
type VerifierOptions struct {
	Secret    []byte            // HS256; at least MinSecret bytes
	PublicKey ed25519.PublicKey // EdDSA
	Audience  string            // when set, a token's aud must have it
	Now       func() time.Time  // nil: time.Now
}

// Verifier checks the tokens that clients bring. Which algorithm a token may use follows from the keys that there are, and each key is
// used by its own algorithm alone: a public key is never a secret, and "none" is never an algorithm.
type Verifier struct {
	secret    []byte
	publicKey ed25519.PublicKey
	parser    *jwt.Parser
	now       func() time.Time
}

// NewVerifier checks the keys.
func NewVerifier(o VerifierOptions) (*Verifier, error) {
	v := &Verifier{secret: slices.Clone(o.Secret), publicKey: slices.Clone(o.PublicKey), now: o.Now}
	if v.now == nil {
		v.now = time.Now
	}
	var algorithms []string
	if len(o.Secret) > 0 {
		if len(o.Secret) < MinSecret {
			return nil, fmt.Errorf("conn: the token secret has %d bytes; it needs at least %d", len(o.Secret), MinSecret)
		}
		algorithms = append(algorithms, jwt.SigningMethodHS256.Alg())
	}
	if len(o.PublicKey) > 0 {
		if len(o.PublicKey) != ed25519.PublicKeySize {
			return nil, fmt.Errorf("conn: the Ed25519 public key has %d bytes, not %d", len(o.PublicKey), ed25519.PublicKeySize)
		}
		algorithms = append(algorithms, jwt.SigningMethodEdDSA.Alg())
	}
	if len(algorithms) == 0 {
		return nil, errors.New("conn: a Verifier needs a secret or a public key")
	}
	parsing := []jwt.ParserOption{jwt.WithValidMethods(algorithms), jwt.WithExpirationRequired(), jwt.WithTimeFunc(v.now)}
	if o.Audience != "" {
		parsing = append(parsing, jwt.WithAudience(o.Audience))
	}
	v.parser = jwt.NewParser(parsing...)
	return v, nil
}

// key is the one key of the token's algorithm. The parser has refused algorithms without a key before it asks.
func (v *Verifier) key(t *jwt.Token) (any, error) {
	switch t.Method {
	case jwt.SigningMethodHS256:
		return v.secret, nil
	case jwt.SigningMethodEdDSA:
		return v.publicKey, nil
	}
	return nil, jwt.ErrTokenUnverifiable
}

type claims struct {
	jwt.RegisteredClaims
	DeviceID *string `json:"did,omitempty"`
}

// Verify tells whose token it is and until when it holds. deviceID is the one of HELLO; a token with a did is good for that device
// only. The error is an *protocol.Error that says nothing of why a token is refused, but for token_expired. Any goroutine may call it.
func (v *Verifier) Verify(token, deviceID string) (user string, expires time.Time, err error) {
	var c claims
	_, err = v.parser.ParseWithClaims(token, &c, v.key)
	switch {
	case err != nil && onlyExpired(err) && v.fits(&c, deviceID):
		return "", time.Time{}, &protocol.Error{Code: protocol.CodeTokenExpired, Message: "token is expired"}
	case err != nil || !v.fits(&c, deviceID):
		return "", time.Time{}, &protocol.Error{Code: protocol.CodeUnauthenticated, Message: "token is not valid"}
	}
	return c.Subject, c.ExpiresAt.Time, nil
}

// fits checks the claims that the library does not know.
func (v *Verifier) fits(c *claims, deviceID string) bool {
	return protocol.ValidID(c.Subject) && (c.DeviceID == nil || *c.DeviceID == deviceID)
}

// onlyExpired tells whether the token was fine while it lasted. The library joins the errors of all claims; signatures it checks before.
func onlyExpired(err error) bool {
	if !errors.Is(err, jwt.ErrTokenExpired) {
		return false
	}
	for _, other := range [...]error{
		jwt.ErrTokenInvalidAudience, jwt.ErrTokenNotValidYet, jwt.ErrTokenRequiredClaimMissing, jwt.ErrTokenUnverifiable,
		jwt.ErrTokenSignatureInvalid, jwt.ErrTokenMalformed,
	} {
		if errors.Is(err, other) {
			return false
		}
	}
	return true
}

// unixSeconds holds a time until the year 2106, and takes later ones for that.
func unixSeconds(t time.Time) uint32 {
	return uint32(min(max(t.Unix(), 0), math.MaxUint32))
}

// Mint makes an HS256 token for a user, good for ttl from now on. A deviceID other than "" binds it to that device, an audience other than ""
// is its aud.
func Mint(secret []byte, user, deviceID, audience string, ttl time.Duration) (string, error) {
	switch {
	case len(secret) < MinSecret:
		return "", fmt.Errorf("conn: the token secret has %d bytes; it needs at least %d", len(secret), MinSecret)
	case !protocol.ValidID(user):
		return "", fmt.Errorf("conn: %q is no user id: 1 to %d bytes of A-Z a-z 0-9 . _ @ + = | -", user, protocol.MaxIDLen)
	}
	now := time.Now()
	c := claims{RegisteredClaims: jwt.RegisteredClaims{
		Subject: user, IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(ttl)),
	}}
	if deviceID != "" {
		c.DeviceID = &deviceID
	}
	if audience != "" {
		c.Audience = jwt.ClaimStrings{audience}
	}
	return jwt.NewWithClaims(jwt.SigningMethodHS256, c).SignedString(secret)
}

// ParsePublicKey reads an Ed25519 public key in PEM (PKIX, "PUBLIC KEY"), as `openssl pkey -pubout` writes it.
func ParsePublicKey(text []byte) (ed25519.PublicKey, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PUBLIC KEY" {
		return nil, errors.New("conn: no PEM block of type PUBLIC KEY")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("conn: public key: %w", err)
	}
	ed, ok := key.(ed25519.PublicKey)
	if !ok {
		return nil, fmt.Errorf("conn: the public key is %T, not Ed25519", key)
	}
	return ed, nil
}
