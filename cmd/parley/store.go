package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/parley-im/parley/storage"
	"github.com/parley-im/parley/storage/embedded"
)

// store is all that a server keeps, wherever that is.
type store interface {
	storage.Buckets
	storage.Directory
	storage.Changes
	storage.Operator
	io.Closer
}

// storeFlags say which store a command works on.
type storeFlags struct {
	data, mongo string
}

// register adds the flags to a command on a store that is there already.
func (s *storeFlags) register(cmd *cobra.Command) {
	addConfigFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&s.data, "data", defaultData, "the data folder of a server that is stopped")
	f.StringVar(&s.mongo, "mongo", "", "a MongoDB database by its URI, instead of a folder; the server may run. PARLEY_MONGO keeps a password off the command line")
	annotate(cmd, insteadOf, []string{"data"}, "mongo")
}

// open opens a store that is there; it does not make one.
func (s *storeFlags) open(ctx context.Context) (store, error) {
	if s.mongo != "" {
		return openMongo(ctx, s.mongo)
	}
	return openFolder(s.data)
}

// openFolder opens the store in a data folder.
func openFolder(dir string) (*embedded.Store, error) {
	if _, err := os.Stat(filepath.Join(dir, "db")); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no store in %s; name a server's data folder with --data, or a database with --mongo", dir)
	}
	return embedded.Open(embedded.Options{Dir: dir})
}
