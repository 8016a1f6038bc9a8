#include "cli/run/together.h"

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>

#include "cli/base/common.h"
#include "core/error.h"
#include "core/text.h"

namespace tessera::cli {
namespace {

// Most failures happen in all processes: the leader gets time to report them once. A process that ends because
// another did reports at once.
[[noreturn]] void end_together(parallel::World& world, const std::string& line, int exit_code) {
  if (exit_code != parallel::kLostExitCode) {
    world.blame(line);
    if (!world.leader()) std::this_thread::sleep_for(std::chrono::seconds(2));
  }
  std::cout.flush();
  // Prints immediately, since the launcher of the processes writes to the same place.
  std::cerr << text("tessera: process ", world.rank(), " of ", world.size(), ": ", one_line(line), "\n")
            << std::flush;
  parallel::World::end(exit_code);
}

}  // namespace

void run_together(std::unique_ptr<parallel::World> world, const std::function<void(parallel::World&)>& body) {
  if (world->size() == 1) return body(*world);
  try {
    body(*world);
  } catch (const parallel::Lost& lost) {
    end_together(*world, lost.what(), parallel::kLostExitCode);
  } catch (const Error& error) {
    if (error.kind != ErrorKind::interrupted)
      end_together(*world, error.what(), error.kind == ErrorKind::usage ? 2 : 1);
    if (world->leader()) throw;
    world.reset();
    std::exit(130);  // the leader reports it for all processes
  } catch (const std::exception& error) {
    const std::string message = error.what();
    end_together(*world, message.substr(0, message.find('\n')), 1);
  }
}

}  // namespace tessera::cli
