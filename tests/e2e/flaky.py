"""An agent loop for tests: the second rollout of every prompt fails."""

from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop


class FlakyAgentLoop(SingleTurnAgentLoop):
    async def run(self, sampling_params, **kwargs):
        output = await super().run(sampling_params, **kwargs)
        if kwargs["session_id"] == 1:
            raise RuntimeError("this rollout was made to fail")
        return output
