"""CAMP RL: PPO with a learned critic."""
