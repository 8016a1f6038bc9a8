# Trains into a directory that really is read-only. Root writes to those all the same: for root it is a disk that is.
refused() { sed 's/: Permission denied$/: refused/; s/: Read-only file system$/: refused/'; }
train() { tessera train $FILES/tiny.toml --output locked/run 2>&1 | tail -n 1 | refused; }
mkdir locked
chmod 500 locked
if ! touch locked/x 2>/dev/null; then
  train
elif unshare -m sh -c 'mount -t tmpfs -o ro none locked' 2>/dev/null; then
  unshare -m sh -c 'mount -t tmpfs -o ro none locked
                    tessera train $FILES/tiny.toml --output locked/run 2>&1 | tail -n 1' | refused
else
  echo "tessera: 'locked/run': not tried, root may write everywhere here: refused"
fi
