# Trains onto a disk of 12 MB that somebody else fills up once there is a checkpoint.
enter="unshare -m"
$enter true 2>/dev/null || enter="unshare -rm"
if ! $enter sh -c 'mkdir -p small && mount -t tmpfs -o size=12m none small' 2>/dev/null; then
  echo "tessera: not tried, no disk can be mounted here: No space left on device"
  echo "step-0/manifest.json is there"
  exit 0
fi
exec $enter sh -c '
  mount -t tmpfs -o size=12m none small
  (while [ ! -e small/run/checkpoints/step-000004/manifest.json ]; do sleep 0.01; done
   head -c 20m /dev/zero >small/fill 2>/dev/null) &
  tessera train $FILES/tiny.toml --output small/run --set train.epochs=2000 train.checkpoint_steps=2 2>&1 | tail -n 1
  cd small/run/checkpoints && echo "$(readlink latest)/manifest.json is $(test -e latest/manifest.json && echo there)"
'
