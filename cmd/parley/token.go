package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/parley-im/parley/conn"
	"github.com/parley-im/parley/protocol"
)

type tokenSettings struct {
	data     string
	ttl      time.Duration
	device   string
	audience string
}

func newToken() *cobra.Command {
	var s tokenSettings
	cmd := &cobra.Command{
		Use:   "token [flags] USER...",
		Short: "Print a token for each user",
		Long: `token prints a token for each user, one a line, in their order. It signs them with the secret in the data folder (HS256), and makes
both when they are not there yet. Whoever has a token is that user until it expires.`,
		Example: `  parley token alice
  parley token --data /var/lib/parley --ttl 1h alice bob
  PARLEY_TOKEN=$(parley token alice) parley chat --as alice --to bob`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("whose token? Give one or more user ids, as in: parley token alice bob")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, users []string) error {
			return printTokens(cmd.OutOrStdout(), &s, users)
		},
	}
	f := cmd.Flags()
	addConfigFlag(cmd)
	f.StringVar(&s.data, "data", defaultData, "the server's data folder")
	f.DurationVar(&s.ttl, "ttl", 24*time.Hour, "how long the tokens are good for")
	f.StringVar(&s.device, "device", "", "bind the tokens to this device id")
	f.StringVar(&s.audience, "audience", "", "put this into the aud claim")
	return cmd
}

// printTokens prints all of them or none.
func printTokens(out io.Writer, s *tokenSettings, users []string) error {
	for _, user := range users {
		if err := checkUser(user); err != nil {
			return err
		}
	}
	if s.ttl < time.Second {
		return fmt.Errorf("--ttl is %s; give at least 1s", s.ttl)
	}
	if len(s.device) > protocol.MaxDeviceID {
		return fmt.Errorf("--device has %d bytes; at most %d are allowed", len(s.device), protocol.MaxDeviceID)
	}
	secret, err := openSecret(s.data)
	if err != nil {
		return err
	}
	var lines strings.Builder
	for _, user := range users {
		token, err := conn.Mint(secret, user, s.device, s.audience, s.ttl)
		if err != nil {
			return err
		}
		fmt.Fprintln(&lines, token)
	}
	_, err = io.WriteString(out, lines.String())
	return err
}

func checkUser(id string) error {
	if protocol.ValidID(id) {
		return nil
	}
	return fmt.Errorf("%q is no user id: 1 to %d of A-Z a-z 0-9 . _ @ + = | -", id, protocol.MaxIDLen)
}
