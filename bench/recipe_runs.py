"""Runs of recipes shared by several benches: trained for given minutes, skipped if finished, evaluated, probed."""
import json
import pathlib
import resource
import subprocess
import sys
import tomllib

RECIPES = pathlib.Path(__file__).resolve().parent.parent / "recipes"


def processor_seconds():
    """CPU seconds of all child processes that have ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


class Runs:
    """Trainings and measurements of one bench: `options` has program, output, threads, precision, seed, scale."""

    def __init__(self, options):
        self.options = options

    def tessera(self, *words):
        done = subprocess.run([self.options.program, *map(str, words)], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"tessera {' '.join(map(str, words))}:\n{done.stderr.strip().splitlines()[-1]}")
        return done.stdout

    def json_of(self, *words):
        return json.loads(self.tessera(*words, "--json"))

    def train(self, name, recipe, settings, *words, steps=None):
        """Returns the run's folder; its settings and steps are part of its identity."""
        folder = self.options.output / name
        if (folder / "report.html").exists():
            return folder
        settings = [*settings, f"train.threads={self.options.threads}", f"train.seed={self.options.seed}",
                    f"train.precision={self.options.precision}"]
        if steps:
            settings += [f"train.steps={steps}"]
        print(f"{name}: {steps or 'all'} steps", file=sys.stderr, flush=True)
        self.tessera("train", RECIPES / recipe, "--output", folder, "--resume", "auto", *words, "--set", *settings)
        return folder

    def steps_of(self, minutes, name, recipe, settings, *words):
        """Returns (steps, images per step) for `minutes`, from a trial of 60 steps without the first third.

        With one thread, minutes are CPU time, independent of other programs. The speed then includes the trial's start,
        so a run gets slightly less than its time.
        """
        used = processor_seconds()
        trial = self.train(name + "-trial", recipe, [*settings, "train.log_every=20", "train.eval_every=0",
                                                     "schedule.warmup_epochs=0", "schedule.warmup_steps=0"],
                           *words, steps=60)
        speeds = [line["images_per_second"] for line in self.logged(trial, "train")][1:]
        batch = tomllib.loads((trial / "recipe.toml").read_text())["train"]["batch_size"]
        used = processor_seconds() - used
        kept = trial / "processor_seconds"  # for a bench that is started again
        if used > 1:
            kept.write_text(str(used))
        if self.options.threads == 1 and kept.exists():
            speed = 60 * batch / float(kept.read_text())
        else:
            speed = sum(speeds) / len(speeds)
        print(f"{name}: {speed:.0f} images/s", file=sys.stderr, flush=True)
        return max(1, round(minutes * self.options.scale * 60 * speed / batch)), batch

    def for_minutes(self, minutes, name, recipe, settings, *words):
        if (self.options.output / name / "report.html").exists():
            return self.options.output / name
        steps, _ = self.steps_of(minutes, name, recipe, settings, *words)
        return self.train(name, recipe, settings, *words, steps=steps)

    def top1(self, folder):
        return f"{100 * self.json_of('eval', '--weights', folder)['top1']:.1f} %"

    @staticmethod
    def logged(folder, kind):
        """Returns the lines of this kind in a run's metrics.jsonl."""
        return [line for line in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines()) if line["kind"] == kind]

    def probe(self, folder, per_class=0):
        """Returns the best layer and its accuracy, for ridge regression on the mean of the patches."""
        layers = self.json_of("probe", "--weights", folder, "--per-class", per_class)["layers"]
        best = max(layers, key=lambda layer: layer["ridge_top1"])
        return best["layer"], 100 * best["ridge_top1"]
