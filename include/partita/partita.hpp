#pragma once

/// All that a program needs that declares a model and trains it: see README.md.
#include "partita/cli/main.hpp"
#include "partita/comm/threads.hpp"
#include "partita/model/builtin/builtin.hpp"
#include "partita/model/model.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/plan/memory.hpp"
#include "partita/strategies/plan/plan.hpp"
#include "partita/strategies/plan/traffic.hpp"
#include "partita/train/run/trainer.hpp"
