package embedded

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"

	"github.com/parley-im/parley/storage"
)

// Routes implements storage.Routes in memory: the gateway is in the same process, so they need not expire. A user's routes are a slice
// that is replaced and never changed, and Online hands it out as it is.
type Routes struct {
	max    int
	seed   maphash.Seed
	shards [64]routeShard
}

type routeShard struct {
	mu    sync.RWMutex
	users map[string][]storage.Route
}

// NewRoutes makes an empty table in which a user has at most maxPerUser routes; 0: any number.
func NewRoutes(maxPerUser int) *Routes {
	r := &Routes{max: maxPerUser, seed: maphash.MakeSeed()}
	for i := range r.shards {
		r.shards[i].users = make(map[string][]storage.Route)
	}
	return r
}

func (r *Routes) shard(user string) *routeShard {
	return &r.shards[maphash.String(r.seed, user)%uint64(len(r.shards))]
}

// Register implements storage.Routes.
func (r *Routes) Register(ctx context.Context, route storage.Route, takeOver bool) (storage.Registration, error) {
	if err := ctx.Err(); err != nil {
		return storage.Registration{}, err
	}
	s := r.shard(route.User)
	s.mu.Lock()
	defer s.mu.Unlock()
	var reg storage.Registration
	var kept []storage.Route
	reg.Admitted = true
	for _, old := range s.users[route.User] {
		rival := route.Class != "" && old.Class == route.Class
		switch {
		case sameSession(old, route): // registered again
		case old.DeviceID == route.DeviceID, rival && takeOver:
			reg.Displaced = append(reg.Displaced, old)
		case rival:
			reg.Admitted, reg.Holder = false, old
			kept = append(kept, old)
		default:
			kept = append(kept, old)
		}
	}
	if reg.Admitted && r.max > 0 && len(kept) >= r.max {
		reg.Admitted, reg.TooMany = false, true
	}
	if reg.Admitted {
		kept = append(kept, route)
	}
	s.set(route.User, kept)
	return reg, nil
}

func sameSession(a, b storage.Route) bool {
	return a.Session == b.Session && a.Gateway == b.Gateway
}

// set replaces a user's routes.
func (s *routeShard) set(user string, routes []storage.Route) {
	if len(routes) == 0 {
		delete(s.users, user)
		return
	}
	s.users[user] = slices.Clip(routes)
}

// Remove implements storage.Routes.
func (r *Routes) Remove(ctx context.Context, route storage.Route) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s := r.shard(route.User)
	s.mu.Lock()
	defer s.mu.Unlock()
	var kept []storage.Route
	for _, old := range s.users[route.User] {
		if !sameSession(old, route) {
			kept = append(kept, old)
		}
	}
	s.set(route.User, kept)
	return nil
}

// Online implements storage.Routes.
func (r *Routes) Online(_ context.Context, users []string, out [][]storage.Route) ([][]storage.Route, error) {
	for _, user := range users {
		s := r.shard(user)
		s.mu.RLock()
		routes := s.users[user]
		s.mu.RUnlock()
		out = append(out, routes)
	}
	return out, nil
}
