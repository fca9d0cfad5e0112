package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/parley-im/parley/storage"
	"github.com/parley-im/parley/storage/mongo"
)

func newMigrate() *cobra.Command {
	var data, uri string
	cmd := &cobra.Command{
		Use:   "migrate --data DIR --mongo URI",
		Short: "Copy a data folder into MongoDB",
		Long: `migrate copies all that a stopped server has in its data folder into a MongoDB database: messages with their numbers, changes, deletions, read marks and
signed-out devices. Then it reads both and holds them against each other. Devices notice nothing but the pause.

It wants an empty database. What was interrupted goes on when the same command is given again. The folder is not changed, and keeps the secret
that signs tokens: start the server on the same folder with --mongo.`,
		Example: `  parley migrate --data /var/lib/parley --mongo mongodb://db.example.org/parley
  parley serve --data /var/lib/parley --mongo mongodb://db.example.org/parley`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if uri == "" {
				return errors.New("into which database? Give its URI with --mongo or PARLEY_MONGO")
			}
			ctx, stop := interruptible(cmd)
			defer stop()
			err := migrate(ctx, data, uri, cmd.OutOrStdout(), cmd.ErrOrStderr())
			if ctx.Err() != nil && errors.Is(err, context.Canceled) {
				return errors.New("interrupted; the same command goes on from there")
			}
			return err
		},
	}
	addConfigFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&data, "data", defaultData, "the data folder of a server that is stopped")
	f.StringVar(&uri, "mongo", "", "the MongoDB database, by its URI; PARLEY_MONGO keeps a password off the command line")
	return cmd
}

func migrate(ctx context.Context, data, uri string, out, progress io.Writer) (err error) {
	from, err := openFolder(data)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	to, err := mongo.OpenTarget(ctx, mongo.Options{URI: uri})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	fmt.Fprintf(out, "copying %s into %s\n", data, describeMongo(uri))
	b := &migrateBar{out: progress}
	done, err := storage.Migrate(ctx, from, to, b.show)
	b.clear()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d conversations with %d messages are there, and are the same. Go on with: parley serve --data %s --mongo URI\n",
		done.Conversations, done.Messages, data)
	return nil
}

// migrateBar shows a bar for each step.
type migrateBar struct {
	out  io.Writer
	step storage.Step
	bar  *bar
}

func (b *migrateBar) show(m storage.Migrated) {
	if m.Step == storage.StepCount {
		return
	}
	if m.Step != b.step {
		b.clear()
		what := "messages copied"
		if m.Step == storage.StepVerify {
			what = "messages compared"
		}
		b.step, b.bar = m.Step, newBar(b.out, what, m.Total)
	}
	b.bar.set(m.Messages)
}

func (b *migrateBar) clear() {
	if b.bar != nil {
		b.bar.clear()
	}
}
