//go:build linux

package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// clockTicks is what /proc counts processor time in: USER_HZ, 100 on every Linux that Go runs on.
const clockTicks = 100

// CPU is processor time that a process has used.
type CPU struct {
	User   time.Duration
	System time.Duration
}

// procCPU reads a process's processor time.
func procCPU(pid int) (CPU, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return CPU{}, err
	}
	return parseStat(b)
}

// parseStat reads fields 14 and 15 of /proc/PID/stat. The second field is a name in parentheses and may hold anything.
func parseStat(b []byte) (CPU, error) {
	end := bytes.LastIndexByte(b, ')')
	if end < 0 {
		return CPU{}, errors.New("/proc/PID/stat: no name")
	}
	fields := strings.Fields(string(b[end+1:]))
	if len(fields) < 13 {
		return CPU{}, errors.New("/proc/PID/stat: too few fields")
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	tick := time.Second / clockTicks
	return CPU{User: time.Duration(user) * tick, System: time.Duration(system) * tick}, errors.Join(err1, err2)
}

// selfCPU is the harness's own processor time.
func selfCPU() CPU {
	var ru unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &ru) != nil {
		return CPU{}
	}
	return CPU{User: time.Duration(ru.Utime.Nano()), System: time.Duration(ru.Stime.Nano())}
}

// procRSS is a process's resident memory in bytes.
func procRSS(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	return parseRSS(b)
}

func parseRSS(b []byte) (int64, error) {
	for line := range strings.Lines(string(b)) {
		rest, ok := strings.CutPrefix(line, "VmRSS:")
		if !ok {
			continue
		}
		kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		return kb << 10, err
	}
	return 0, errors.New("/proc/PID/status: no VmRSS")
}

// usage is what both processes have used at a moment.
type usage struct {
	client    CPU
	server    *CPU // nil: not known
	serverRSS int64
}

func sample(pid int) usage {
	u := usage{client: selfCPU()}
	if pid == 0 {
		return u
	}
	if cpu, err := procCPU(pid); err == nil {
		u.server = &cpu
	}
	if rss, err := procRSS(pid); err == nil {
		u.serverRSS = rss
	}
	return u
}

// since is what was used from before to c, for messages in a time of seconds.
func (c CPU) since(before CPU, messages uint64, seconds float64) Cost {
	user, system := c.User-before.User, c.System-before.System
	cost := Cost{User: user.Seconds(), System: system.Seconds(), Cores: (user + system).Seconds() / seconds}
	if messages > 0 {
		cost.PerMessage = (user + system).Seconds() * 1e6 / float64(messages)
	}
	return cost
}
