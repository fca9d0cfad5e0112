package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/parley-im/parley/storage"
	"github.com/parley-im/parley/storage/embedded"
	"github.com/parley-im/parley/storage/mongo"
)

// openStore opens what the server keeps things in, and the log in line with it.
func (srv *server) openStore() (storage.Log, error) {
	if srv.settings.mongo != "" {
		return srv.openDatabase()
	}
	s := srv.settings
	folder, err := embedded.Open(embedded.Options{
		Dir: s.data, CacheBytes: int64(s.cache), ReserveBytes: int64(s.reserve), QueueBytes: int64(s.queue), Logger: srv.log, Registerer: srv.metrics,
	})
	if err != nil {
		return nil, err
	}
	srv.store = folder
	srv.onClose("the store", folder.Close)
	return folder.NewLog(), nil
}

// startTimeout is how long the database may take at the start.
const startTimeout = 30 * time.Second

// openDatabase opens the database and takes its lease, so that no second server uses it.
func (srv *server) openDatabase() (storage.Log, error) {
	s := srv.settings
	name, lock, err := lockFolder(s.data)
	if err != nil {
		return nil, err
	}
	srv.onClose("the data folder", lock.Close)
	if _, err := os.Stat(filepath.Join(s.data, "db")); err == nil {
		srv.log.Warn("the data folder has a store of its own, which is not used with --mongo; parley migrate copies it", "folder", s.data)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	db, err := mongo.Open(ctx, mongo.Options{
		URI: s.mongo, MaxBody: int(s.maxBody), Cache: embedded.NewCache(int64(s.cache)), Logger: srv.log, Registerer: srv.metrics,
	})
	if err != nil {
		return nil, err
	}
	srv.store = db
	srv.onClose("the store", db.Close)
	host, _ := os.Hostname() // only for people
	if srv.lease, err = db.Lease(ctx, mongo.LeaseOptions{Server: name, Host: cmp.Or(host, "an unknown host")}); err != nil {
		return nil, err
	}
	srv.onClose("the lease of the database", srv.lease.Close)
	return embedded.OpenLog(embedded.LogOptions{QueueBytes: int64(s.queue), Writable: srv.lease.Ready, Registerer: srv.metrics})
}

// openMongo opens a database for an operator's command; it must be there.
func openMongo(ctx context.Context, uri string) (*mongo.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return mongo.Open(ctx, mongo.Options{URI: uri, Existing: true})
}

// lost is closed when another server took the database.
func (srv *server) lost() <-chan struct{} {
	if srv.lease == nil {
		return nil
	}
	return srv.lease.Lost()
}

// describeMongo says which database a URI names, without user and password.
func describeMongo(uri string) string {
	_, rest, _ := strings.Cut(uri, "://")
	hosts, rest, _ := strings.Cut(rest, "/")
	hosts, _, _ = strings.Cut(hosts, "?")
	hosts = hosts[strings.LastIndexByte(hosts, '@')+1:]
	database, _, _ := strings.Cut(rest, "?")
	return fmt.Sprintf("the MongoDB database %s on %s", cmp.Or(database, "parley"), hosts)
}
