// Package conn is the connection tier: it holds the clients' connections, checks who they are, cuts what they send into frames, and
// writes what the logic tier has for them. It knows nothing of the logic tier but the interface Logic.
package conn
