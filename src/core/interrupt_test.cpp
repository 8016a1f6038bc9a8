#include "core/progress.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace tessera {
namespace {

// Runs `body` in a child and returns its exit code, or minus the signal that ended it.
template <class Body>
int exit_code_of(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(Interrupt, TheFirstSignalIsAFlagAndTheSecondEndsTheProcess) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    EXPECT_EQ(exit_code_of([&] {
                catch_interrupts();
                const Interruptible stretch;
                if (interrupted()) return 1;
                ::raise(signal);
                return interrupted() ? 0 : 2;
              }),
              0);
    EXPECT_EQ(exit_code_of([&] {
                catch_interrupts();
                const Interruptible stretch;
                ::raise(SIGINT);
                ::raise(signal);
                return 3;
              }),
              130);
  }
  EXPECT_FALSE(interrupted());
}

TEST(Interrupt, WhereNobodyAsksASignalEndsTheProcess) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    EXPECT_EQ(exit_code_of([&] {
                catch_interrupts();
                ::raise(signal);
                return 1;
              }),
              -signal);
    EXPECT_EQ(exit_code_of([&] {
                catch_interrupts();
                {
                  const Interruptible outer;
                  { const Interruptible inner; }
                  ::raise(signal);
                }
                if (!interrupted()) return 1;
                ::raise(signal);
                return 2;
              }),
              -signal);
  }
}

TEST(Interrupt, ASignalThatEndsTheProcessIsNamedInALine) {
  EXPECT_EXIT(
      {
        catch_interrupts();
        ::raise(SIGTERM);
      },
      testing::KilledBySignal(SIGTERM), "^tessera: ended by SIGTERM\n$");
}

TEST(Interrupt, ASignalBeforeTheProgramIsLoadedEndsItWithALine) {
  EXPECT_EXIT(
      {
        sigset_t ends;
        sigemptyset(&ends);
        sigaddset(&ends, SIGTERM);
        ::sigprocmask(SIG_BLOCK, &ends, nullptr);
        ::raise(SIGTERM);
        catch_interrupts();
      },
      testing::KilledBySignal(SIGTERM), "^tessera: ended by SIGTERM\n$");
}

TEST(Interrupt, AnIgnoredHangUpStaysIgnored) {
  EXPECT_EQ(exit_code_of([] {
              ::signal(SIGHUP, SIG_IGN);
              catch_interrupts();
              ::raise(SIGHUP);
              return interrupted() ? 1 : 0;
            }),
            0);
}

TEST(Interrupt, AFileThatMayNotGrowIsAnErrorNotASignal) {
  EXPECT_EQ(exit_code_of([] {
              catch_interrupts();
              const rlimit limit{8, 8};
              FILE* file = ::tmpfile();
              if (!file || ::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
              if (::write(::fileno(file), "12345678", 8) != 8) return 2;
              return ::write(::fileno(file), "9", 1) == -1 && errno == EFBIG ? 0 : 3;
            }),
            0);
}

}  // namespace
}  // namespace tessera
