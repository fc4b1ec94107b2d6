// The pool: everyone runs, barriers order memory, ranges cover, failures and forks are survived.

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "threads.h"

#ifdef OUTPACE_X86_64
#include <immintrin.h>
#endif

namespace outpace {

TEST(threads_run_calls_every_thread_once) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    std::vector<int> calls(static_cast<size_t>(threads), 0);
    for (int run = 0; run < 100; ++run) {
      pool.run([&](int thread, int of) {
        CHECK_EQUAL(of, threads);
        ++calls[static_cast<size_t>(thread)];
      });
    }
    for (const int count : calls) CHECK_EQUAL(count, 100);
  }
}

TEST(threads_barrier_shows_what_was_written_before_it) {
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    std::vector<int> value(static_cast<size_t>(threads), 0);
    std::atomic<int> wrong{0};
    pool.run([&](int thread, int of) {
      for (int phase = 1; phase <= 500; ++phase) {
        value[static_cast<size_t>(thread)] = phase;
        pool.barrier(thread);
        if (value[static_cast<size_t>((thread + 1) % of)] != phase) ++wrong;
        pool.barrier(thread);
      }
    });
    CHECK_EQUAL(wrong.load(), 0);
  }
}

TEST(threads_that_have_arrived_go_on_until_they_wait) {
  ThreadPool pool(3);
  std::vector<int> value(3, 0);
  std::atomic<int> arrived{0}, wrong{0};
  pool.run([&](int thread, int of) {
    for (int phase = 1; phase <= 200; ++phase) {
      value[static_cast<size_t>(thread)] = phase;
      pool.arrive(thread);
      ++arrived;
      pool.wait(thread);
      if (value[static_cast<size_t>((thread + 1) % of)] != phase) ++wrong;
      pool.barrier(thread);
    }
  });
  CHECK_EQUAL(arrived.load(), 600);
  CHECK_EQUAL(wrong.load(), 0);
}

TEST(threads_that_have_left_a_job_keep_nobody_waiting) {
  ThreadPool pool(3);
  std::atomic<int> calls{0};
  pool.run([&](int thread, int) {
    if (thread == 1) return;
    pool.barrier(thread);
    ++calls;
  });
  CHECK_EQUAL(calls.load(), 2);
}

TEST(threads_wake_up_after_a_pause) {
  ThreadPool pool(3);
  std::atomic<int> calls{0};
  for (int run = 0; run < 3; ++run) {
    pool.run([&](int, int) { ++calls; });
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // longer than the workers stay awake
  }
  CHECK_EQUAL(calls.load(), 9);
}

TEST(threads_that_fetch_what_is_read_soon_are_there_for_the_next_run) {
  ThreadPool pool(3);
  for (int round = 0; round < 300; ++round) {
    auto bytes = std::make_unique<char[]>(1 << 20);
    auto soon = std::make_shared<const std::vector<Stretch>>(1 + round % 2, Stretch{bytes.get(), 1 << 20});
    std::atomic<int> calls{0};
    pool.run([&](int, int) { ++calls; }, std::move(soon));
    bytes.reset();  // a hint holds nobody to anything
    pool.run([&](int thread, int) {
      pool.barrier(thread);
      ++calls;
    });
    CHECK_EQUAL(calls.load(), 6);
  }
}

TEST(threads_static_shares_cover_the_range_evenly) {
  for (const int count : {0, 1, 5, 64, 1000003}) {
    for (const int threads : {1, 2, 3, 7}) {
      int end = 0;
      for (int thread = 0; thread < threads; ++thread) {
        const Range share = static_share(count, thread, threads);
        CHECK_EQUAL(share.begin, end);
        CHECK(share.end - share.begin == count / threads || share.end - share.begin == count / threads + 1);
        end = share.end;
      }
      CHECK_EQUAL(end, count);
    }
  }
}

TEST(threads_shared_range_hands_out_every_item_once) {
  ThreadPool pool(4);
  SharedRange items;
  for (const int count : {0, 1, 10, 1000}) {
    std::vector<int> taken(static_cast<size_t>(count), 0);
    items.reset(count);
    pool.run([&](int, int) {
      for (Range range = items.take(7); range.begin < range.end; range = items.take(7)) {
        for (int i = range.begin; i < range.end; ++i) ++taken[static_cast<size_t>(i)];
      }
    });
    for (const int times : taken) CHECK_EQUAL(times, 1);
  }
}

TEST(threads_a_failing_job_frees_those_who_wait_and_reaches_the_caller) {
  ThreadPool pool(3);
  for (const int failing : {0, 1, 2}) {
    std::string message;
    try {
      pool.run([&](int thread, int) {
        pool.barrier(thread);
        if (thread == failing) throw std::runtime_error("thread " + std::to_string(thread));
        pool.barrier(thread);
        pool.barrier(thread);
      });
    } catch (const std::runtime_error& error) {
      message = error.what();
    }
    CHECK_EQUAL(message, "thread " + std::to_string(failing));
    std::atomic<int> calls{0};
    pool.run([&](int thread, int) {
      pool.barrier(thread);
      ++calls;
    });
    CHECK_EQUAL(calls.load(), 3);
  }
}

TEST(threads_calls_from_several_threads_wait_for_one_another) {
  ThreadPool pool(2);
  int inside = 0, calls = 0;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&] {
      for (int run = 0; run < 50; ++run) {
        pool.run([&](int thread, int) {
          if (thread != 0) return;
          CHECK_EQUAL(++inside, 1);
          ++calls;
          --inside;
        });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  CHECK_EQUAL(calls, 150);
}

TEST(threads_refuse_nesting_and_senseless_counts) {
  ThreadPool pool(2);
  CHECK_THROWS(pool.run([&](int, int) { pool.run([](int, int) {}); }), std::logic_error);
  CHECK_THROWS(ThreadPool(0), std::invalid_argument);
  CHECK_THROWS(ThreadPool(-1), std::invalid_argument);
  CHECK_THROWS(ThreadPool(100000), std::invalid_argument);
}

TEST(threads_models_share_one_pool_while_it_is_used) {
  const auto first = shared_thread_pool(2), second = shared_thread_pool(2), other = shared_thread_pool(3);
  CHECK(first == second);
  CHECK(first != other);
  CHECK_EQUAL(other->threads(), 3);
}

#ifdef OUTPACE_X86_64
TEST(threads_jobs_compute_with_denormals_whatever_the_caller_has_set) {
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | 0x8040u);  // flush denormals to zero, on input and output
  ThreadPool pool(2);
  float halves[2];
  pool.run([&](int thread, int) {
    volatile float smallest = 0x1p-126f;
    halves[thread] = smallest * 0.5f;
  });
  CHECK_EQUAL(_mm_getcsr() & 0x8040u, 0x8040u);
  _mm_setcsr(saved);
  CHECK_EQUAL(halves[0], 0x1p-127f);
  CHECK_EQUAL(halves[1], 0x1p-127f);
}
#endif

#ifndef __SANITIZE_THREAD__  // which does not follow a fork of a program with threads
TEST(threads_a_forked_child_hires_its_own_workers) {
  ThreadPool pool(3);
  pool.run([](int, int) {});
  const pid_t child = fork();
  if (child == 0) {
    std::atomic<int> calls{0};
    pool.run([&](int thread, int) {
      pool.barrier(thread);
      ++calls;
    });
    _exit(calls.load() == 3 ? 0 : 1);
  }
  int status = 0;
  CHECK_EQUAL(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  std::atomic<int> calls{0};
  pool.run([&](int, int) { ++calls; });
  CHECK_EQUAL(calls.load(), 3);
}
#endif

}  // namespace outpace
